package reduce

// Names lists the users' names of the reducers.
func Names() []string { return []string{"cs", "random", "stratified", "kmeans", "kmedian"} }

// Named returns the reducer of one of Names for a basis of that many points. The ν of its
// 1-norm program for the coefficients is 1 (for ChunkingSynthetic its default), so it is
// for callers that need only the points.
func Named(name string, points int) Reducer {
	const nu = 1
	switch name {
	case "cs":
		return ChunkingSynthetic{Synthetic: points}
	case "random":
		return Subset{Nu: nu}
	case "stratified":
		return Subset{Nu: nu, Stratified: true}
	case "kmeans":
		return Clusters{Nu: nu, Norm: TwoNorm}
	case "kmedian":
		return Clusters{Nu: nu, Norm: OneNorm}
	}
	panic("reduce: no reducer is called " + name)
}
