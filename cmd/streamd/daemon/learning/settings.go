package learning

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"streamd/config"
	"streamd/incremental"
)

// Settings is everything that determines a model beside the live blocks. A receipt's leaf has the
// SHA-256 of the text, and the snapshot has the text without the features, which it has anyway.
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
}

// Settings is the text of the settings with the features.
func (l *Learner) Settings(features []string) []byte {
	c := l.Config
	text, err := json.Marshal(Settings{
		Algorithm: incremental.Algorithm, Topic: c.Kafka.Topic, Features: features,
		Blocks: c.Blocks, Format: c.Format, Retire: c.Retire, Drift: c.Drift,
		Model: c.Model, Rules: l.Rules, Sample: c.Sample, Kernel: c.Kernel, Values: l.Values,
	})
	if err != nil {
		panic(err) // texts and numbers
	}
	return text
}

// ErrRules says that settings have rules, and only the digest of their file.
var ErrRules = errors.New("the rules of model.knowledge are in a file of their own")

// Read reads the text of settings without features back.
func Read(text []byte) (*Learner, error) {
	var s Settings
	read := json.NewDecoder(bytes.NewReader(text))
	read.DisallowUnknownFields()
	if err := read.Decode(&s); err != nil {
		return nil, fmt.Errorf("the settings of the model: %w", err)
	}
	switch {
	case s.Algorithm != incremental.Algorithm:
		return nil, fmt.Errorf("they are of algorithm %d, and this program has %d, which may give other bits", s.Algorithm, incremental.Algorithm)
	case s.Model.Knowledge != "":
		return nil, ErrRules
	}
	c := &config.Config{Blocks: s.Blocks, Format: s.Format, Retire: s.Retire, Drift: s.Drift, Model: s.Model, Sample: s.Sample, Kernel: s.Kernel}
	c.Kafka.Topic = s.Topic
	return New(c, s.Values, zerolog.Nop())
}
