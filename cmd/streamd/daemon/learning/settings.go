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
	"streamd/ingest/schema"
	"streamd/kernels/rules"
)

// Settings is everything that determines a model beside the live blocks. A receipt's leaf has the
// SHA-256 of the text of OfLeaf. The snapshot has the text without the features, which it has
// anyway, and with the processor and the file of rules.
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
	// The file model.knowledge, by which an auditor makes the planes again. Empty in a leaf, which
	// has its digest.
	RulesFile string `json:"rules_file,omitempty"`
	// Lists are the learned lists of values, beside those that Format has. Empty in a leaf.
	Lists Lists `json:"lists,omitzero"`
	// GOARCH of the program that made the model. Elsewhere functions such as exp have other bits,
	// of which refinement and curves are made. Empty in a leaf.
	Processor string `json:"processor,omitempty"`
}

// Lists says which lists of values were learned (values: {most: K} of a category).
type Lists struct {
	Most   map[string]int `json:"most,omitempty"`   // the K that each was learned for, by category
	Wanted *schema.Schema `json:"wanted,omitempty"` // with the lists, until the live blocks are in its features
}

// Settings are the settings of models in features.
func (l *Learner) Settings(features []string) Settings {
	c, digest := l.Config, ""
	if l.Rules != nil {
		digest = l.Rules.Digest()
	}
	return Settings{
		Algorithm: incremental.Algorithm, Topic: c.Kafka.Topic, Features: features,
		Blocks: c.Blocks, Format: c.Format, Retire: c.Retire, Drift: c.Drift,
		Model: c.Model, Rules: digest, Sample: c.Sample, Kernel: c.Kernel, Values: l.Values,
	}
}

// Saved is the text for the snapshot.
func (l *Learner) Saved(lists Lists) []byte {
	s := l.Settings(nil)
	s.Lists = lists
	s.Processor = runtime.GOARCH
	if l.Rules != nil {
		s.RulesFile = string(l.Rules.Text())
	}
	return s.Text()
}

// OfLeaf are the settings as a leaf has them, for the features of the live blocks.
func (s Settings) OfLeaf(features []string) Settings {
	s.Features, s.RulesFile, s.Processor, s.Lists = features, "", "", Lists{}
	return s
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

// Learner makes models by the settings, which it checks. missing says why its models may have other
// bits than those that were made by them. Then the Learner can tell sums and weights, and no model.
func (s Settings) Learner() (l *Learner, missing, err error) {
	c := &config.Config{Spec: config.Spec{Blocks: s.Blocks, Format: s.Format, Model: s.Model, Sample: s.Sample, Kernel: s.Kernel}, Retire: s.Retire, Drift: s.Drift}
	c.Kafka.Topic = s.Topic
	if err := c.Recheck("blocks", "format", "retire", "drift", "model", "sample", "kernel"); err != nil || s.Values < 0 {
		return nil, nil, fmt.Errorf("the settings of the model cannot be: %w", cmp.Or(err, errors.New("held_out_values is negative")))
	}
	known, err := s.rules()
	if err == nil {
		l, err = newLearner(c, s.Values, known, zerolog.Nop())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the settings of the model cannot be: %w", err)
	}
	if s.Algorithm != incremental.Algorithm {
		missing = fmt.Errorf("algorithm %d made them, and this program has %d, which may give other bits", s.Algorithm, incremental.Algorithm)
	}
	return l, missing, nil
}

// rules are those of model.knowledge. They are nil if there are none.
func (s Settings) rules() (*rules.Rules, error) {
	if s.Model.Knowledge == "" {
		if s.Rules != "" || s.RulesFile != "" {
			return nil, errors.New("they have rules, and model.knowledge is empty")
		}
		return nil, nil
	}
	known, err := rules.Parse("model.knowledge", []byte(s.RulesFile))
	if err != nil {
		return nil, err
	}
	if digest := known.Digest(); digest != s.Rules {
		return nil, fmt.Errorf("the rules of model.knowledge have the digest %s, and the settings say %s", digest, s.Rules)
	}
	return known, nil
}
