package reduce

// named lists the reducers that users can name, in the order of Names. Their programs have ν = 1:
// callers that keep only the points find better coefficients.
var named = []struct {
	name         string
	semidefinite bool // refuses kernels that are not positive semidefinite
	reducer      func(points int) Reducer
}{
	{"cs", false, func(points int) Reducer { return ChunkingSynthetic{Synthetic: points} }},
	{"random", false, func(int) Reducer { return Subset{Nu: 1} }},
	{"stratified", false, func(int) Reducer { return Subset{Nu: 1, Stratified: true} }},
	{"kmeans", false, func(int) Reducer { return Clusters{Nu: 1, Norm: TwoNorm} }},
	{"kmedian", false, func(int) Reducer { return Clusters{Nu: 1, Norm: OneNorm} }},
	{"slmc", true, func(int) Reducer { return Direct{Machine: LargeMargin{Nu: 1}, Means: true} }},
	{"rs", true, func(int) Reducer { return Direct{Machine: ReducedSet{Nu: 1}, Means: true, Nu: 1} }},
	{"skfd", true, func(int) Reducer { return Direct{Machine: Fisher{Mu: 1e-3}, Means: true, Nu: 1} }},
	{"lda", false, func(int) Reducer { return Discriminant{Nu: 1} }},
	{"cholesky", true, func(int) Reducer { return Cholesky{Nu: 1} }},
}

// Names lists the users' names of the reducers.
func Names() (names []string) {
	for _, r := range named {
		names = append(names, r.name)
	}
	return names
}

// Named returns the reducer of one of Names for a basis of that many points, for callers that need
// only the points.
func Named(name string, points int) Reducer {
	for _, r := range named {
		if r.name == name {
			return r.reducer(points)
		}
	}
	panic("reduce: no reducer is called " + name)
}

// NeedsSemidefinite reports whether a reducer of Names refuses kernels that are not positive
// semidefinite.
func NeedsSemidefinite(name string) bool {
	for _, r := range named {
		if r.name == name {
			return r.semidefinite
		}
	}
	return false
}
