package intake

import (
	"encoding/json"
	"slices"

	"streamd/cmd/streamd/daemon/joining"
	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
)

// A prediction that is remembered is a record of the topic of rows: its key is the id, its value is
// the row as it was sent, and its headers have the answer. So the row that waits for its label
// comes from the log like any other, also after a restart and in a replica, and has the answer.

// AnswerHeader is the header of a remembered prediction with the answer, as POST
// /v1/predict?form=rows gives it. ModelHeader is the one with the fingerprint of the model, of
// every record that has an answer or a model.
const (
	AnswerHeader = "streamd.answer"
	ModelHeader  = "streamd.model"
)

// givenOf is the answer that a record has beside its row; nil: it has none.
func givenOf(r *kafka.Record) (*joining.Given, error) {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key != AnswerHeader {
			continue
		}
		var answer struct {
			Model string `json:"model"`
			Rows  []struct {
				Label string `json:"label"`
			} `json:"rows"`
		}
		err := json.Unmarshal(h.Value, &answer)
		if err != nil || len(answer.Rows) != 1 {
			return nil, unusablef(kindHeaders, "the header %s is no prediction of one row", AnswerHeader)
		}
		g := &joining.Given{Label: answer.Rows[0].Label, Model: answer.Model}
		if err := g.Check(); err != nil {
			return nil, unusablef(kindHeaders, "the header %s is no prediction: %v", AnswerHeader, err)
		}
		return g, nil
	}
	return nil, nil
}

// given judges the answer that a row was given, in the place of one that is made now. There is no
// judgement while no model is served, or where the present one does not know the label: the figures
// have its classes.
func (j *judge) given(g *joining.Given, class string, by *model.Served) (to judgement) {
	if by.Model == nil {
		return to
	}
	if j.served != by {
		j.served, j.by = by, by.Classifier()
	}
	classes := j.by.Model.Classes
	answer := slices.Index(classes, g.Label)
	if answer < 0 {
		return to
	}
	return judgement{by: j.by, rulings: []ruling{{class: int32(slices.Index(classes, class)), answer: int32(answer), given: true}}}
}

// mostGivenPairs bounds the pairs of a class and an answer in a report.
const mostGivenPairs = 50

// givenAnswers reports the answers that were given; nil: no row has one.
func (in *Intake) givenAnswers() *model.Given {
	if in.Labels == nil {
		return nil
	}
	in.record.mu.Lock()
	judged := in.record.given
	in.record.mu.Unlock()
	r := in.Labels.Given(mostGivenPairs)
	if r.Rows+r.Waiting+judged == 0 {
		return nil
	}
	a := &model.Given{Waiting: r.Waiting, Rows: r.Rows, Right: r.Right, Models: r.Models, Judged: judged, Pairs: []model.GivenPair{}}
	for _, p := range r.Pairs {
		a.Pairs = append(a.Pairs, model.GivenPair{Class: p.Class, Answer: p.Answer, Rows: p.Rows})
	}
	return a
}
