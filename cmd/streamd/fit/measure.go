package fit

import (
	"context"
	"fmt"
	"slices"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/confusion"
)

// measure reports the accuracies of the models.
func (f *fit) measure(ctx context.Context, test *dataset.Dataset, r *Report) error {
	auc, err := f.decide(ctx, r)
	if err != nil {
		return err
	}
	if f.knowledge != nil {
		if r.Knowledge, err = f.reportRules(ctx); err != nil {
			return err
		}
	}
	own, held, err := f.score(ctx, f.data, "scoring", f.foldModels)
	if err != nil {
		return err
	}
	r.TrainAccuracy = own.accuracy()
	if f.folds == 0 && test == nil {
		r.Unanswered = f.answers(own, nil).Unanswered()
	}
	if f.folds > 0 {
		all := f.newJudgement()
		for fold, t := range held {
			switch {
			case t.weight > 0:
				r.FoldAccuracies = append(r.FoldAccuracies, t.accuracy())
				all.merge(t)
			case f.blocks == nil && fold < f.judgedFolds():
				return fmt.Errorf("fold %d of %d of %s has no rows; ask for fewer --folds", fold+1, f.folds, f.data.Path)
			}
		}
		r.TestAccuracy, r.HeldOut = new(r.HeldOutAccuracy()), f.answers(all, auc)
	}
	if test != nil {
		t, _, err := f.score(ctx, test, "testing", nil)
		if err != nil {
			return err
		}
		if t.weight == 0 {
			return fmt.Errorf("%s has no row that weighs anything", test.Path)
		}
		areas, err := f.areas(&t.scores)
		if err != nil {
			return fmt.Errorf("%s: %w", test.Path, err)
		}
		r.TestAccuracy, r.Test = new(t.accuracy()), f.answers(t, areas)
	}
	for _, a := range []*model.Answers{r.Test, r.HeldOut} {
		if a != nil && f.want.Model.CountsRight() {
			r.NoBetter = a.NoBetter()
			break
		}
	}
	if f.want.LOO {
		t, err := f.leaveOneOut(ctx)
		if err != nil {
			return err
		}
		r.LOOAccuracy = new(t.accuracy())
	}
	if f.want.EpsilonSV > 0 {
		r.EpsilonSV, err = f.supportVectors(ctx, f.want.EpsilonSV, test)
	}
	return err
}

// tally counts rows by their weights.
type tally struct{ right, weight float64 }

// count counts row i of a block.
func (t *tally) count(b *incremental.Block, i int, right bool) {
	weight := b.Weight(i)
	t.weight += weight
	if right {
		t.right += weight
	}
}

func (t *tally) add(o tally) {
	t.right += o.right
	t.weight += o.weight
}

// accuracy is the share of the rows that were classified right; a row of weight
// 2 counts as two.
func (t *tally) accuracy() float64 { return t.right / t.weight }

// score classifies all rows by the model, and each row by the model without its fold. A row
// of a class that a model does not know counts as wrong. Of rows other than the fit's, the
// decision values are kept.
func (f *fit) score(ctx context.Context, d *dataset.Dataset, task string, foldModels []*incremental.Model) (all judgement, folds []judgement, err error) {
	all, folds = f.newJudgement(), make([]judgement, len(foldModels))
	for fold := range folds {
		folds[fold] = f.newJudgement()
	}
	tools := f.tools()
	err = dataset.Each(ctx, d, task,
		func(worker int, b *incremental.Block, firstRow int64) ([]judgement, error) {
			z := &tools[worker]
			judged := make([]judgement, 1+len(foldModels))
			judged[0] = f.judge(f.model, none, z.enter(b, f.in), d != f.data)
			if len(foldModels) == 0 {
				return judged, nil
			}
			for fold, part := range z.parts(b, firstRow) {
				if m := foldModels[fold]; m != nil {
					judged[1+fold] = f.judge(m, fold, z.enter(part, f.without(fold)), false)
				}
			}
			return judged, nil
		},
		func(judged []judgement) error {
			all.merge(judged[0])
			for fold := range folds {
				if of := judged[1+fold]; of.matrix != nil {
					folds[fold].merge(of)
				}
			}
			return nil
		})
	return all, folds, err
}

// judgement counts rows by their weights.
type judgement struct {
	tally
	matrix *confusion.Matrix // of the classes of the model of all rows
	scores
}

func (f *fit) newJudgement() judgement { return judgement{matrix: confusion.New(len(f.model.Classes))} }

func (j *judgement) merge(o judgement) {
	j.add(o.tally)
	j.matrix.Merge(o.matrix)
	j.append(o.scores)
}

// scores are rows' decision values, one of each plane, for the areas under the ROC curves.
type scores struct {
	values  []float64
	codes   []int // classes of the model of all rows; −1: another
	weights []float64
	cut     bool // there were more than mostValues
}

func (s *scores) append(o scores) {
	if s.cut = s.cut || len(s.values)+len(o.values) > mostValues; s.cut {
		*s = scores{cut: true}
		return
	}
	s.values, s.codes, s.weights = append(s.values, o.values...), append(s.codes, o.codes...), append(s.weights, o.weights...)
}

// areas are the areas under the ROC curves of the classes, nil where rows have too many values.
func (f *fit) areas(s *scores) ([]float64, error) {
	if s.cut {
		return nil, nil
	}
	planes := f.model.Planes
	auc, values, positive := make([]float64, len(f.model.Classes)), make([]float64, len(s.codes)), make([]bool, len(s.codes))
	for c, class := range f.model.Classes {
		sign, plane := 1.0, slices.IndexFunc(planes, func(p incremental.Plane) bool { return p.Class == class })
		if plane < 0 { // the other class of one plane
			sign, plane = -1, 0
		}
		for row, code := range s.codes {
			values[row], positive[row] = sign*s.values[row*len(planes)+plane], code == c
		}
		o, err := calibration.NewOutcomes(values, positive, s.weights)
		if err != nil {
			return nil, err
		}
		auc[c] = o.AUC()
	}
	return auc, nil
}

// answers reports a judgement. It is nil where no row weighs anything.
func (f *fit) answers(j judgement, auc []float64) *model.Answers {
	if j.weight == 0 {
		return nil
	}
	a := model.NewAnswers(f.rules.Rule.Kind(), f.model.Classes, j.matrix, auc)
	return &a
}

// judge counts the labels of a block by a model, with the rule of all rows or that without a
// fold. keep says whether to keep the decision values.
func (f *fit) judge(m *incremental.Model, fold int, b *incremental.Block, keep bool) judgement {
	j := f.newJudgement()
	class, values := make([]int32, b.Rows()), make([]float64, b.Rows()*len(m.Planes))
	m.Classify(class, values, b.Columns)
	at := (&incremental.Block{Classes: m.Classes}).ClassesIn(f.model.Classes)
	if len(m.Classes) == len(f.model.Classes) { // else the rule is of other planes
		rule := f.rules.Rule
		if fold != none {
			rule = f.rules.Without(fold)
		}
		rule.Decide(class, values)
	}
	of := b.ClassesIn(f.model.Classes)
	for i, code := range b.Codes {
		said := at[class[i]]
		j.count(b, i, of[code] == said)
		weight := b.Weight(i)
		if weight > 0 {
			j.matrix.Add(int32(of[code]), int32(said), weight)
		}
		if keep {
			j.codes, j.weights = append(j.codes, of[code]), append(j.weights, weight)
		}
	}
	if keep {
		j.values = values
	}
	return j
}
