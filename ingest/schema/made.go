package schema

// Made is a feature of a schema, with its places. Its slices must not be written to.
type Made struct {
	Feature
	Name    string
	Sources []int   // its columns, in Schema.Sources
	At      []int   // places in Schema.Columns of the columns that it makes, without marks
	Marks   int     // place of the marks of missing values; −1: it has none
	Value   float64 // what a missing value of a number counts as, unless it is refused
	Parts   [2]int  // of an interaction: its two features in Schema.Made
}

// Made lists the features that make columns, each interaction behind the features that it is of.
func (s *Schema) Made() []Made {
	out := make([]Made, len(s.made))
	for i := range s.made {
		m := &s.made[i]
		out[i] = Made{m.Feature, m.name, m.sources, m.at, m.marks, m.value, m.of}
	}
	return out
}

// Truths are the texts that are true and false of a bool whose column has texts.
func (f *Feature) Truths() (trues, falses []string) {
	if trues = f.True; trues == nil {
		trues = []string{"true", "1"}
	}
	if falses = f.False; falses == nil {
		falses = []string{"false", "0"}
	}
	return trues, falses
}
