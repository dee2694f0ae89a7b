package config

import (
	"errors"
	"maps"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/ingest/kafka/login"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
	"streamd/kernels/rules"
	"streamd/kernels/rules/document"
	"streamd/retire"
	"streamd/retire/receipt"
)

var (
	topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`) // as in Kafka
	hostPattern  = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?$`)
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) // safe in a group name and a URL
)

// check reports problems beyond the types and bounds of single values.
func (l *loader) check() {
	l.checkKafka()
	l.checkFormat()
	l.checkRegistry()
	l.checkSpec()
	l.checkLabels()
	l.checkRetire()
	l.checkReceipts()
	l.checkPredict()
	l.checkModelTopic()
	l.checkHTTP()
	if m := l.config.Limits.Memory; m != 0 && m < leastMemory {
		l.fault("limits.memory", "want 0 or at least %s", leastMemory)
	}
	if l.config.Snapshot.File == "" {
		l.fault("snapshot.file", "want a file name; the state is not kept without one")
	}
}

// Recheck checks some sections of a configuration that was not loaded, but saved by another
// program, as Load checks them; of the other sections it takes the defaults. It reads no file. The
// error is an *Error.
func (c *Config) Recheck(sections ...string) error {
	l := newLoader()
	l.noTopic, l.noFiles = true, true
	for _, k := range table {
		if section, _, _ := strings.Cut(k.Name, "."); slices.Contains(sections, section) {
			l.set(setting{key: k, items: k.items(k.in(c))})
		}
	}
	l.config.Limits.Features, l.config.Limits.Classes = math.MaxInt, math.MaxInt
	l.check()
	if len(l.problems) > 0 {
		return &Error{l.problems, l.config.Log}
	}
	return nil
}

func (l *loader) checkPredict() {
	p, remembers := l.config.Predict, l.config.Remembers()
	if p.Topic == "" && (p.Output != "" && !remembers || p.Group != "") {
		l.fault("predict.topic", "is empty, and predict.output or predict.group says what to do with its rows")
	}
	for _, topic := range []struct{ key, name string }{{"predict.topic", p.Topic}, {"predict.output", p.Output}} {
		if topic.name != "" && !validTopic(topic.name) {
			l.fault(topic.key, "%s is not a topic's name: want at most 249 letters, digits or . _ -", document.Quoted(topic.name))
		}
	}
	switch {
	case p.Output == "":
	case p.Output == p.Topic:
		l.fault("predict.output", "is predict.topic: the answers would be answered")
	case remembers && l.config.Labels.Topic == "" && !l.bad["labels.topic"]:
		l.fault("predict.output", "is the topic that is read, where predictions wait for their labels: that takes labels.topic")
	case remembers && l.config.Format.Envelope != EnvelopeNone:
		l.fault("format.envelope", "does not go with predict.output as the topic that is read: predictions that are remembered have none")
	case remembers && p.Topic != "" && p.Form != AnswerJSON:
		l.fault("predict.form", "does not go with predict.output as the topic that is read: there the answer is a header, in the form rows")
	case remembers:
	case p.Output == l.config.Retire.Topic:
		l.fault("predict.output", "is the control topic")
	}
}

// checkModelTopic checks the topic that served models are written to.
func (l *loader) checkModelTopic() {
	c := l.config
	name := c.Model.Topic
	if name == "" {
		return
	}
	if !validTopic(name) {
		l.fault("model.topic", "%s is not a topic's name: want at most 249 letters, digits or . _ -", document.Quoted(name))
	}
	for _, other := range []struct{ key, topic string }{
		{"kafka.topic", c.Kafka.Topic}, {"labels.topic", c.Labels.Topic}, {"retire.topic", c.Retire.Topic},
		{"dead_letters.topic", c.DeadLetters.Topic}, {"predict.topic", c.Predict.Topic}, {"predict.output", c.Predict.Output},
	} {
		if name == other.topic {
			l.fault("model.topic", "is %s: models need a topic of their own", other.key)
		}
	}
}

func (l *loader) checkHTTP() {
	h := l.config.HTTP
	known := h.TokensFile != "" || h.TLS.ClientCAFile != "" || l.bad["http.tokens_file"] || l.bad["http.tls.client_ca_file"]
	if problem := badAddress(h.Listen, 0); problem != "" {
		l.fault("http.listen", "%s", problem)
	} else if !known && !h.Open && !l.bad["http.open"] && !h.local() {
		l.fault("http.listen", "others can reach this address, and nothing says who may call: set http.tokens_file or http.tls.client_ca_file, or http.open: true to serve everybody")
	}
	for _, host := range h.Hosts {
		if !hostPattern.MatchString(host) {
			l.fault("http.hosts", "%s: want a host name without a scheme or a port", document.Quoted(host))
		}
	}
	for _, origin := range h.CORSOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin || strings.ToLower(origin) != origin {
			l.fault("http.cors_origins", "%s: want an origin as browsers write it, such as https://board.example", document.Quoted(origin))
		}
	}

	tls := h.TLS
	needs := func(name string, set bool, needed string, has bool) {
		if set && !has && !l.bad[needed] {
			l.fault(name, "is set without %s", needed)
		}
	}
	needs("http.tls.cert_file", tls.CertFile != "", "http.tls.key_file", tls.KeyFile != "")
	needs("http.tls.key_file", tls.KeyFile != "", "http.tls.cert_file", tls.CertFile != "")
	needs("http.tls.client_ca_file", tls.ClientCAFile != "", "http.tls.cert_file", tls.CertFile != "")
	needs("http.tls.client_ca_file", tls.ClientCAFile != "", "http.tls.clients", len(tls.Clients) > 0)
	needs("http.tls.clients", len(tls.Clients) > 0, "http.tls.client_ca_file", tls.ClientCAFile != "")
	for _, name := range slices.Sorted(maps.Keys(tls.Clients)) {
		if tls.Clients[name] == "" {
			l.fault("http.tls.clients", "%s has no role", document.Quoted(name))
		}
	}
}

// leastMemory is the memory of the process beside blocks and buffers of the log.
const leastMemory Size = 128 << 20

func (l *loader) checkKafka() {
	c := l.config
	if len(c.Kafka.Brokers) == 0 {
		l.fault("kafka.brokers", "want at least one address host:port")
	}
	for _, broker := range c.Kafka.Brokers {
		host, _, _ := net.SplitHostPort(broker)
		if problem := badAddress(broker, 1); problem != "" {
			l.fault("kafka.brokers", "%s: %s", document.Quoted(broker), problem)
		} else if host == "" {
			l.fault("kafka.brokers", "%s: has no host", document.Quoted(broker))
		}
	}
	switch topic := byName["kafka.topic"]; {
	case c.Kafka.Topic == "" && l.noTopic:
	case c.Kafka.Topic == "":
		l.fault(topic.Name, "is required; set it in the file, as %s or as %s", topic.Flag, topic.Env)
	case !validTopic(c.Kafka.Topic):
		l.fault(topic.Name, "not a topic's name: want at most 249 letters, digits or . _ -")
	}
	if c.DeadLetters.Policy == DeadLettersQueue && !l.bad["kafka.topic"] && c.Kafka.Topic != "" {
		switch {
		case c.DeadLetters.Topic == c.Kafka.Topic:
			l.fault("dead_letters.topic", "is the topic that is read; dead letters would be read again")
		case !validTopic(c.DeadLetters.Topic) && validTopic(c.Kafka.Topic):
			l.fault("dead_letters.topic", "%s is not a topic's name: want at most 249 letters, digits or . _ -", document.Quoted(c.DeadLetters.Topic))
		}
	}

	tls := c.Kafka.TLS
	if !tls.Enabled && !l.bad["kafka.tls.enabled"] {
		for _, field := range []struct{ name, value string }{
			{"kafka.tls.ca_file", tls.CAFile}, {"kafka.tls.cert_file", tls.CertFile},
			{"kafka.tls.key_file", tls.KeyFile}, {"kafka.tls.server_name", tls.ServerName},
		} {
			if field.value != "" {
				l.fault(field.name, "is set, but kafka.tls.enabled is false")
			}
		}
	}
	if (tls.CertFile == "") != (tls.KeyFile == "") {
		set, missing := "kafka.tls.cert_file", "kafka.tls.key_file"
		if tls.CertFile == "" {
			set, missing = missing, set
		}
		if !l.bad[missing] {
			l.fault(set, "is set without %s; they go together", missing)
		}
	}

	l.checkSASL()
}

// password reports whether a login takes a user name and a password.
func (m Mechanism) password() bool {
	return m == MechanismPlain || m == MechanismScramSHA256 || m == MechanismScramSHA512
}

// checkSASL checks which keys of a login go together.
func (l *loader) checkSASL() {
	sasl := l.config.Kafka.SASL
	if l.bad["kafka.sasl.mechanism"] {
		return
	}
	oauth := sasl.OAuth
	fromURL, fromFile := oauth.TokenURL != "", oauth.TokenFile != ""
	for _, field := range []struct {
		name        string
		set         bool
		fits, wants bool
		with        string // what it goes with
	}{
		{"username", sasl.Username != "", sasl.Mechanism.password(), true, "plain and scram"},
		{"password_file", sasl.PasswordFile != "", sasl.Mechanism.password(), true, "plain and scram"},
		{"oauth.token_file", oauth.TokenFile != "", sasl.Mechanism == MechanismOAuthBearer, false, "oauthbearer"},
		{"oauth.token_url", oauth.TokenURL != "", sasl.Mechanism == MechanismOAuthBearer, false, "oauthbearer"},
		{"oauth.client_id", oauth.ClientID != "", sasl.Mechanism == MechanismOAuthBearer, fromURL, "oauthbearer"},
		{"oauth.client_secret_file", oauth.ClientSecretFile != "", sasl.Mechanism == MechanismOAuthBearer, fromURL, "oauthbearer"},
		{"oauth.scope", oauth.Scope != "", sasl.Mechanism == MechanismOAuthBearer, false, "oauthbearer"},
		{"oauth.audience", oauth.Audience != "", sasl.Mechanism == MechanismOAuthBearer, false, "oauthbearer"},
		{"oauth.parameters", len(oauth.Parameters) > 0, sasl.Mechanism == MechanismOAuthBearer, false, "oauthbearer"},
		{"oauth.ca_file", oauth.CAFile != "", sasl.Mechanism == MechanismOAuthBearer, false, "oauthbearer"},
		{"oauth.extensions", len(oauth.Extensions) > 0, sasl.Mechanism == MechanismOAuthBearer, false, "oauthbearer"},
		{"aws.region", sasl.AWS.Region != "", sasl.Mechanism == MechanismAWSMSKIAM, false, "aws-msk-iam"},
	} {
		name := "kafka.sasl." + field.name
		switch {
		case field.set && !field.fits && sasl.Mechanism == MechanismNone:
			l.fault(name, "is set, but kafka.sasl.mechanism is none; it goes with %s", field.with)
		case field.set && !field.fits:
			l.fault(name, "does not go with kafka.sasl.mechanism: %s, but with %s", sasl.Mechanism, field.with)
		case !field.set && field.fits && field.wants:
			l.fault(name, "is required with kafka.sasl.mechanism: %s", sasl.Mechanism)
		case field.set && strings.HasPrefix(field.name, "oauth.") && field.name != "oauth.token_file" && field.name != "oauth.extensions" && fromFile && !fromURL:
			l.fault(name, "goes with kafka.sasl.oauth.token_url, not with token_file")
		}
	}
	if sasl.Mechanism == MechanismOAuthBearer {
		l.checkOAuth()
	}
	if region := sasl.AWS.Region; region != "" {
		if err := login.CheckRegion(region); err != nil {
			l.fault("kafka.sasl.aws.region", "want the name of a region, such as eu-central-1")
		}
	}
}

func (l *loader) checkOAuth() {
	oauth := l.config.Kafka.SASL.OAuth
	switch {
	case oauth.TokenFile == "" && oauth.TokenURL == "" && !l.bad["kafka.sasl.oauth.token_file"]:
		l.fault("kafka.sasl.oauth.token_url", "or token_file is required with kafka.sasl.mechanism: %s", MechanismOAuthBearer)
	case oauth.TokenFile != "" && oauth.TokenURL != "":
		l.fault("kafka.sasl.oauth.token_file", "is set together with token_url; want one of them")
	}
	if oauth.TokenURL != "" {
		if err := login.CheckURL(oauth.TokenURL); err != nil {
			l.fault("kafka.sasl.oauth.token_url", "%v", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(oauth.Parameters)) {
		if err := login.CheckParameter(name); err != nil {
			l.fault("kafka.sasl.oauth.parameters", "%v", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(oauth.Extensions)) {
		if err := login.CheckExtension(name, oauth.Extensions[name]); err != nil {
			l.fault("kafka.sasl.oauth.extensions", "%v", err)
		}
	}
}

func (l *loader) checkFormat() {
	f := l.config.Format
	if f.Label == "" {
		l.fault("format.label", "want the name of the label's field or column")
	}
	if f.Weight != "" && f.Weight == f.Label {
		l.fault("format.weight", "is also the name of the label")
	}
	if err := wire.CheckComment(f.CSVComment); err != nil {
		l.fault("format.csv_comment", "%v", err)
	}
	if _, err := f.Notation(); err != nil && !l.bad["format.csv_decimal"] && !l.bad["format.csv_thousands"] {
		l.fault("format.csv_thousands", "%v", err)
	}
	if most := l.config.Limits.Features; len(f.Features) > most && !l.bad["limits.features"] {
		l.fault("format.features", "%d features, but limits.features is %d", len(f.Features), most)
	}
	if s := f.Schema; s != nil {
		if most := l.config.Limits.Features; len(s.Columns()) > most && !l.bad["limits.features"] {
			l.fault("format.schema", "it makes %d features, but limits.features is %d", len(s.Columns()), most)
		}
		if learns := s.Learns(); len(learns) > 0 && l.config.Labels.Topic != "" {
			l.fault("format.schema", "with labels.topic the features cannot change, and the values of category %s are still to learn: streamd schema learn FILE --schema SCHEMA writes the schema with its list, and so has the model of streamd fit --json", document.Quoted(learns[0]))
		}
		for _, source := range s.Sources() {
			if source.Name == f.Label || source.Name == f.Weight {
				l.fault("format.schema", "%s is the label or the weight", document.Quoted(source.Name))
			}
			if wire.Matches(f.Ignore, source.Name) {
				l.fault("format.ignore", "it matches %s, which a feature is made of", document.Quoted(source.Name))
			}
		}
	}
	seen := map[string]bool{}
	for _, name := range f.Features {
		switch {
		case name == f.Label || name == f.Weight:
			l.fault("format.features", "%s is the label or the weight", document.Quoted(name))
		case seen[name]:
			l.fault("format.features", "%s is named twice", document.Quoted(name))
		}
		seen[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(f.MissingFeatures)) {
		switch {
		case name == f.Label || name == f.Weight:
			l.fault("format.missing_features", "%s is the label or the weight", document.Quoted(name))
		case len(f.Features) > 0 && !slices.Contains(f.Features, name):
			l.fault("format.missing_features", "%s is not in format.features", document.Quoted(name))
		}
	}
	for _, pattern := range f.Ignore {
		if err := wire.CheckPattern(pattern); err != nil {
			l.fault("format.ignore", "%v", err)
			continue
		}
		for _, name := range f.Features {
			if wire.Matches([]string{pattern}, name) {
				l.fault("format.ignore", "%s matches %s, which is in format.features", document.Quoted(pattern), document.Quoted(name))
			}
		}
	}
}

// checkRegistry checks the place of the schemas of framed messages.
func (l *loader) checkRegistry() {
	const prefix = "format.registry."
	r := l.config.Format.Registry
	given := []struct{ name, value string }{
		{"username", r.Username}, {"password_file", r.PasswordFile}, {"tls.ca_file", r.TLS.CAFile},
		{"tls.cert_file", r.TLS.CertFile}, {"tls.key_file", r.TLS.KeyFile}, {"tls.server_name", r.TLS.ServerName},
	}
	for _, key := range given {
		switch {
		case key.value == "" || l.bad[prefix+"url"]:
		case r.URL == "":
			l.fault(prefix+key.name, "is set without %surl", prefix)
		case strings.HasPrefix(key.name, "tls.") && !strings.HasPrefix(r.URL, "https://"):
			l.fault(prefix+key.name, "goes with a %surl that begins with https://", prefix)
		}
	}
	if _, err := registry.CheckURL(r.URL); r.URL != "" && err != nil {
		l.fault(prefix+"url", "%v", err)
	}
	switch f := l.config.Format; {
	case f.SchemaFile != "":
	case f.Message != "":
		l.fault("format.message", "is set without format.schema_file")
	case f.Default == "protobuf" && r.URL == "":
		l.fault("format.default", "the messages have no schema with them: set format.schema_file, or format.registry.url where they are framed")
	}
	together := func(a, b string, has, other bool) {
		if has && !other && !l.bad[prefix+b] {
			l.fault(prefix+a, "is set without %s%s; they go together", prefix, b)
		}
	}
	together("username", "password_file", r.Username != "", r.PasswordFile != "")
	together("password_file", "username", r.PasswordFile != "", r.Username != "")
	together("tls.cert_file", "tls.key_file", r.TLS.CertFile != "", r.TLS.KeyFile != "")
	together("tls.key_file", "tls.cert_file", r.TLS.KeyFile != "", r.TLS.CertFile != "")
}

// checkSpec reports faults of values that are known.
func (l *loader) checkSpec() {
	m := l.config.Model
	if !namePattern.MatchString(m.Name) {
		l.fault("model.name", "want 1 to 64 letters, digits or . _ -")
	}
	if m.Knowledge != "" && !l.noFiles {
		if _, err := rules.Load(m.Knowledge); err != nil {
			l.fault("model.knowledge", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	if most := l.config.Limits.Classes; len(m.ClassWeights) > most && !l.bad["limits.classes"] {
		l.fault("model.class_weights", "%d classes, but limits.classes is %d", len(m.ClassWeights), most)
	}
	for _, f := range l.config.Check() {
		if !f.about(l.bad) {
			l.fault(f.Key, "%s", f.Text(func(key, value string) string {
				if value != "" {
					key += ": " + value
				}
				return key
			}))
		}
	}
}

// checkLabels checks the topic of labels.
func (l *loader) checkLabels() {
	c := l.config
	j := c.Labels
	if j.Topic == "" || l.bad["labels.topic"] {
		for _, key := range []struct {
			name string
			set  bool
		}{{"labels.id", j.ID != ""}, {"labels.horizon", j.Horizon != 0}, {"labels.default", j.Default != NoDefault}, {"labels.late", j.Late != LateReplace}} {
			if key.set && !l.bad["labels.topic"] {
				l.fault(key.name, "is set without labels.topic")
			}
		}
		return
	}
	switch {
	case j.Topic == c.Kafka.Topic:
		l.fault("labels.topic", "is the topic that is read: a label that comes later needs a topic of its own, since it would replace its row there")
	case j.Topic == c.Retire.Topic:
		l.fault("labels.topic", "is the control topic, retire.topic")
	case j.Topic == c.DeadLetters.Topic:
		l.fault("labels.topic", "is the topic of dead letters")
	case !validTopic(j.Topic):
		l.fault("labels.topic", "%s is not a topic's name: want at most 249 letters, digits or . _ -", document.Quoted(j.Topic))
	}
	if c.Blocks.Unit != UnitKey && !l.bad["blocks.unit"] {
		l.fault("labels.topic", "goes with blocks.unit: key: a row and its label have one key")
	}
	if len(c.Format.Features) == 0 && c.Format.Schema == nil && !l.bad["format.features"] && !l.bad["format.schema"] {
		l.fault("labels.topic", "needs format.features or format.schema, since rows wait before a first block could say which features there are")
	}
	if c.Blocks.Unlabelled == UnlabelledKeep {
		l.fault("blocks.unlabelled", "keep does not go with labels.topic: a row waits for its label, and then counts")
	}
	if j.Default != NoDefault {
		if _, err := wire.Label(j.Default); err != nil {
			l.fault("labels.default", "want none or a class: %v", err)
		}
	}
	l.checkLabelID()
	if j.Horizon == 0 && !l.bad["labels.horizon"] {
		if j.Default != NoDefault {
			l.fault("labels.default", "is set without labels.horizon, after which it would count")
		}
		if j.Late != LateReplace {
			l.fault("labels.late", "is set without labels.horizon, after which a label is late")
		}
	}
}

// checkLabelID checks the field of a row that is its id.
func (l *loader) checkLabelID() {
	c := l.config
	id := c.Labels.ID
	if id == "" {
		return
	}
	isSource := c.Format.Schema != nil && slices.ContainsFunc(c.Format.Schema.Sources(), func(s wire.Source) bool { return s.Name == id })
	switch {
	case id == c.Format.Label:
		l.fault("labels.id", "is format.label")
	case id == c.Format.Weight:
		l.fault("labels.id", "is format.weight")
	case slices.Contains(c.Format.Features, id):
		l.fault("labels.id", "is one of format.features: a row is not learned from by its id")
	case isSource:
		l.fault("labels.id", "is a column of format.schema: a row is not learned from by its id")
	}
	if c.Format.Envelope != EnvelopeNone {
		l.fault("format.envelope", "does not go with labels.id: the deletions that it tells name a key")
	}
	if c.Retire.Topic != "" {
		l.fault("retire.topic", "does not go with labels.id: it names blocks by the positions of their records, and a record has several")
	}
}

func (l *loader) checkRetire() {
	r := l.config.Retire
	switch {
	case r.Topic == "" || l.bad["retire.topic"]:
	case r.Topic == l.config.Kafka.Topic:
		l.fault("retire.topic", "is the topic that is read: records that retire blocks need one of their own")
	case r.Topic == l.config.DeadLetters.Topic:
		l.fault("retire.topic", "is the topic of dead letters: records that retire blocks need one of their own")
	case !validTopic(r.Topic):
		l.fault("retire.topic", "%s is not a topic's name: want at most 249 letters, digits or . _ -", document.Quoted(r.Topic))
	}
	if l.config.Kernel.Chooser != "" && r.Topic == "" && !l.bad["retire.topic"] {
		l.fault("kernel.chooser", "needs retire.topic, the control topic that brings the basis to the other instances")
	}
	if u := l.config.Blocks.Unit; r.Header != "" && u != UnitMessage && u != UnitKey && !l.bad["blocks.unit"] {
		l.fault("retire.header", "goes with blocks.unit: message or key: the records of a gathered block can have many values")
	}
	if h := r.HalfLife; h != 0 && (h < leastHalfLife || h%time.Millisecond != 0) {
		l.fault("retire.half_life", "want at least %s, and whole milliseconds, as event times have", leastHalfLife)
	}
	if r.HalfLife != 0 && r.HalfLifeRows != 0 && !l.bad["retire.half_life"] {
		l.fault("retire.half_life_rows", "cannot go together with retire.half_life: weights fall with the age in event time, or with the newer rows")
	}
	if l.bad["retire.keep"] {
		return
	}
	if l.config.Drift.Every != 0 && r.Keep != KeepAll {
		l.fault("drift.every", "goes with retire.keep: all: blocks that the policy lets go leave the sums later, when there is time, and progressive figures are a function of the log")
	}
	if l.config.Drift.Every != 0 && l.config.Kernel.Function != KernelNone {
		l.fault("drift.every", "goes with kernel.function: none: progressive figures are of planes in the features")
	}
	if r.Keep != KeepAll && l.config.Blocks.Unit == UnitKey && !l.bad["blocks.unit"] {
		l.fault("retire.keep", "with blocks.unit: key it has to be all: a tombstone cannot bring back the blocks that its key's block has pushed out, so the live set would depend on the order in which partitions are read")
	}
	for _, bound := range []struct {
		keep Keep
		set  bool
	}{{KeepBlocks, r.Blocks != 0}, {KeepRows, r.Rows != 0}, {KeepAge, r.Age != 0}} {
		name := "retire." + string(bound.keep)
		switch {
		case bound.set && !r.Keep.Has(bound.keep):
			l.fault(name, "is set, but retire.keep is %s", r.Keep)
		case !bound.set && r.Keep.Has(bound.keep):
			l.fault(name, "is required with retire.keep: %s, and greater than 0", r.Keep)
		}
	}
}

// leastHalfLife gives each of the steps of weights a millisecond (retire.HalfLife).
const leastHalfLife = retire.StepsPerHalving * time.Millisecond

// maxWitnesses bounds the lines of a checkpoint.
const maxWitnesses = 16

func (l *loader) checkReceipts() {
	const name = "receipts.witnesses"
	r := l.config.Receipts
	if len(r.Witnesses) > 0 && r.KeyFile == "" && !l.bad["receipts.key_file"] {
		l.fault(name, "is set without receipts.key_file, so there is no log to cosign")
	}
	if len(r.Witnesses) > maxWitnesses {
		l.fault(name, "%d witnesses: want at most %d", len(r.Witnesses), maxWitnesses)
	}
	seen := map[string]bool{}
	for _, text := range r.Witnesses {
		_, key, err := ParseWitness(text)
		switch {
		case err != nil:
			l.fault(name, "%s: %v", document.Quoted(text), err)
		case seen[key.Name()]:
			l.fault(name, "%s is named twice", key.Name())
		default:
			seen[key.Name()] = true
		}
	}
}

// ParseWitness reads an entry of receipts.witnesses: the URL and the public key of a witness.
func ParseWitness(text string) (address string, key *receipt.Witness, err error) {
	address, public, _ := strings.Cut(text, " ")
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || public == "" {
		return "", nil, errors.New("want the URL and the public key of a witness, such as https://witness.example/w1 witness.example/w1+c6877d2e+BHt0…")
	}
	key, err = receipt.ParseWitness(strings.TrimSpace(public))
	return address, key, err
}

func validTopic(name string) bool {
	return topicPattern.MatchString(name) && name != "." && name != ".."
}

// badAddress returns the problem of an address host:port, "" for none.
func badAddress(address string, leastPort uint64) string {
	if strings.ContainsAny(address, " /") {
		return "want an address host:port, without a scheme, a path or spaces"
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "want an address host:port"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < leastPort {
		return "want a port between " + strconv.FormatUint(leastPort, 10) + " and 65535"
	}
	return ""
}

// IgnoresUnknown reports whether columns that are none of the features are ignored.
func (f Format) IgnoresUnknown() bool {
	return f.Unknown == UnknownIgnore || f.Unknown == UnknownAuto && (len(f.Features) > 0 || f.Schema != nil)
}

// IsGiven reports whether a key has its value from a file, a variable or a flag.
func (c *Config) IsGiven(key string) bool { return c.origins[key].Source != "" }

// Warnings returns a sentence for each setting that is allowed but seldom meant.
func (c *Config) Warnings() []string {
	var warnings []string
	if m := c.Model; m.Balanced == SwitchOn && m.Nu == NuAuto && m.Objective == ObjectiveAccuracy {
		warnings = append(warnings, "model.balanced is true and model.objective accuracy: nu is chosen by the share of rows that are right, in which rare classes hardly count; model.objective: balanced counts classes alike")
	}
	if h := c.HTTP; !h.local() {
		if strangers := h.AnonymousRoles(); strangers.Has(RoleRetire) {
			warnings = append(warnings, "whoever reaches "+h.Listen+" can retire blocks: http.open is true without tokens and client certificates, or http.anonymous says so")
		}
		if h.TokensFile != "" && h.TLS.CertFile == "" {
			warnings = append(warnings, "http.tokens_file is set without http.tls.cert_file: tokens cross the network in the clear, unless a proxy encrypts them")
		}
	}
	sasl := c.Kafka.SASL
	shown := map[Mechanism]string{MechanismPlain: "password", MechanismOAuthBearer: "token", MechanismAWSMSKIAM: "token"}[sasl.Mechanism]
	if shown != "" && !c.Kafka.TLS.Enabled && slices.ContainsFunc(c.Kafka.Brokers, func(b string) bool {
		host, _, _ := net.SplitHostPort(b)
		return !loopback(host)
	}) {
		warnings = append(warnings, "kafka.sasl.mechanism is "+string(sasl.Mechanism)+" and kafka.tls.enabled is false: the "+shown+" crosses the network in the clear")
	}
	if u, err := url.Parse(sasl.OAuth.TokenURL); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		warnings = append(warnings, "kafka.sasl.oauth.token_url is not https: the client's secret crosses the network in the clear")
	}
	if u, err := url.Parse(c.Format.Registry.URL); err == nil && u.Scheme == "http" && c.Format.Registry.Username != "" && !loopback(u.Hostname()) {
		warnings = append(warnings, "format.registry.url begins with http and format.registry.username is set: the password crosses the network in the clear")
	}
	return warnings
}

// local reports whether only this machine can reach the address.
func (h HTTP) local() bool {
	host, _, _ := net.SplitHostPort(h.Listen)
	return loopback(host)
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
