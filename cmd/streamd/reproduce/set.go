package reproduce

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/ingest/wire"
)

// set is a data set in memory.
type set struct {
	features []string
	classes  []string
	columns  [][]float64 // n of m numbers
	codes    []int32     // m indices of classes
}

// fileOf is the file of a data set in the data folder: NAME.gz for images in idx, and NAME.csv.gz
// otherwise.
func fileOf(name string) string {
	if strings.Contains(name, "-idx") {
		return name + ".gz"
	}
	return name + ".csv.gz"
}

// readSet reads a file of the data folder. Labels come first.
func readSet(folder, name string) (*set, error) {
	const blockRows = 8192
	reader, err := wire.OpenFile(filepath.Join(folder, fileOf(name)), wire.Options{Label: "first"}, blockRows)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	s := new(set)
	code := map[string]int32{}
	for {
		b, err := reader.Next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		if s.columns == nil {
			s.columns, s.features = make([][]float64, len(b.Columns)), incremental.DefaultFeatures(len(b.Columns))
		}
		m := b.Rows()
		for j, c := range b.Columns {
			s.columns[j] = slices.Grow(s.columns[j], m)
			c.Copy(s.columns[j][len(s.columns[j]):][:m], 0)
			s.columns[j] = s.columns[j][:len(s.columns[j])+m]
		}
		for _, c := range b.Codes {
			label := b.Classes[c]
			if _, known := code[label]; !known {
				code[label] = int32(len(s.classes))
				s.classes = append(s.classes, label)
			}
			s.codes = append(s.codes, code[label])
		}
	}
}

// rows is m.
func (s *set) rows() int { return len(s.codes) }

// pick returns the set of some rows, in their order.
func (s *set) pick(rows []int) *set {
	p := &set{features: s.features, classes: s.classes, codes: make([]int32, len(rows))}
	for i, row := range rows {
		p.codes[i] = s.codes[row]
	}
	for _, c := range s.columns {
		column := make([]float64, len(rows))
		for i, row := range rows {
			column[i] = c[row]
		}
		p.columns = append(p.columns, column)
	}
	return p
}

// block returns a view of the rows before to, from the row from on.
func (s *set) block(from, to int) *incremental.Block {
	b := &incremental.Block{Classes: s.classes, Codes: s.codes[from:to]}
	for _, c := range s.columns {
		b.Columns = append(b.Columns, gram.ColumnOf(c[from:to]))
	}
	return b
}

// dealt deals rows into k×k cells. It returns the rows cell by cell, and the start of each cell
// followed by the number of rows. Row f of the grid is fold f. Column f without the cell on the
// diagonal is fold f's tuning set, one k-th of its training data. So a sum of rows without a fold,
// and without its tuning set, is a sum of whole cells.
//
// Every class is spread evenly over folds and tuning sets: the rows go to the folds in turns, class
// by class, and the k rows of a turn to k columns. Within their classes they are shuffled.
func dealt(codes []int32, k int, seed uint64) (order, start []int) {
	m := len(codes)
	rows := rand.New(rand.NewPCG(seed, uint64(m))).Perm(m)
	slices.SortStableFunc(rows, func(a, b int) int { return int(codes[a]) - int(codes[b]) })
	cell := func(i int) int {
		turn, fold := i/k, i%k
		return fold*k + (turn+fold)%k
	}
	start = make([]int, k*k+1)
	for i := range rows {
		start[cell(i)+1]++
	}
	for c := range k * k {
		start[c+1] += start[c]
	}
	at := slices.Clone(start)
	order = make([]int, m)
	for i, row := range rows {
		c := cell(i)
		order[at[c]] = row
		at[c]++
	}
	return order, start
}

// correctness returns the share of rows, from 0 to 1, that a model puts into their class.
func correctness(m *incremental.Model, rows newton.Blocks) float64 {
	right, all := count(m, rows)
	return float64(right) / float64(all)
}

// count returns the number of rows that a model puts into their class, and of all rows.
func count(m *incremental.Model, rows newton.Blocks) (right, all int) {
	for _, b := range rows {
		class := make([]int32, b.Rows())
		values := make([]float64, len(class)*len(m.Planes))
		m.Classify(class, values, b.Columns)
		for i, code := range b.Codes {
			if m.Classes[class[i]] == b.Classes[code] {
				right++
			}
		}
		all += len(class)
	}
	return right, all
}

// readSplits reads the rows of each subset of a set, counted from 0.
func readSplits(folder, name string) (map[string][]int, error) {
	path := filepath.Join(folder, name+".splits.json.gz")
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	}
	defer f.Close()
	z, err := wire.Unzipped(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var splits map[string]struct{ Train []int }
	if err := json.NewDecoder(z).Decode(&splits); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	rows := map[string][]int{}
	for subset, split := range splits {
		rows[subset] = split.Train
	}
	return rows, nil
}
