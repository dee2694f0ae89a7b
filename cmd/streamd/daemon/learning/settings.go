package learning

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"github.com/rs/zerolog"

	"streamd/config"
	"streamd/incremental"
)

// Settings is everything that determines a model beside the live blocks. A receipt's leaf has the
// SHA-256 of the text. The snapshot has the text without the features, which it has anyway, and
// with the processor.
type Settings struct {
	Algorithm int           `json:"algorithm"`
	Topic     string        `json:"topic"`
	Features  []string      `json:"features,omitempty"`
	Blocks    config.Blocks `json:"blocks"`
	Format    config.Format `json:"format"`
	Retire    config.Retire `json:"retire"`
	Drift     config.Drift  `json:"drift"`
	Model     config.Model  `json:"model"`
	Rules     string        `json:"rules"` // digest of the file model.knowledge; "": there is none
	Sample    config.Sample `json:"sample"`
	Kernel    config.Kernel `json:"kernel"`
	Values    int           `json:"held_out_values"` // most decision values of held-out rows, by limits.memory
	// GOARCH of the program that made the model. Elsewhere functions such as exp have other bits,
	// of which refinement and curves are made. Empty in a leaf.
	Processor string `json:"processor,omitempty"`
}

// Settings are the settings of models in features.
func (l *Learner) Settings(features []string) Settings {
	c := l.Config
	return Settings{
		Algorithm: incremental.Algorithm, Topic: c.Kafka.Topic, Features: features,
		Blocks: c.Blocks, Format: c.Format, Retire: c.Retire, Drift: c.Drift,
		Model: c.Model, Rules: l.Rules, Sample: c.Sample, Kernel: c.Kernel, Values: l.Values,
	}
}

// Saved is the text for the snapshot.
func (l *Learner) Saved() []byte {
	s := l.Settings(nil)
	s.Processor = runtime.GOARCH
	return s.Text()
}

// Text is the text of the settings.
func (s Settings) Text() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts and numbers
	}
	return text
}

// Read reads a text back.
func Read(text []byte) (s Settings, err error) {
	read := json.NewDecoder(bytes.NewReader(text))
	read.DisallowUnknownFields()
	if err = read.Decode(&s); err != nil {
		err = fmt.Errorf("the settings of the model: %w", err)
	}
	return s, err
}

// Learner makes models by the settings, which it checks. missing says what they take that a text
// does not have. Then the Learner can tell sums and weights, and no model.
func (s Settings) Learner() (l *Learner, missing, err error) {
	c := &config.Config{Spec: config.Spec{Blocks: s.Blocks, Format: s.Format, Model: s.Model, Sample: s.Sample, Kernel: s.Kernel}, Retire: s.Retire, Drift: s.Drift}
	c.Kafka.Topic = s.Topic
	if err := c.Recheck("blocks", "format", "retire", "drift", "model", "sample", "kernel"); err != nil || s.Values < 0 {
		return nil, nil, fmt.Errorf("the settings of the model cannot be: %w", cmp.Or(err, errors.New("held_out_values is negative")))
	}
	if l, err = newLearner(c, s.Values, zerolog.Nop()); err != nil {
		return nil, nil, err
	}
	switch {
	case s.Algorithm != incremental.Algorithm:
		missing = fmt.Errorf("algorithm %d made them, and this program has %d, which may give other bits", s.Algorithm, incremental.Algorithm)
	case s.Rules != "":
		missing = errors.New("they take the rules of model.knowledge, which the snapshot does not have")
	}
	return l, missing, nil
}
