package config

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`) // what Kafka allows
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)  // safe in a group's name and in a URL
)

// check reports what the types and bounds of single values cannot say.
func (l *loader) check() {
	l.checkKafka()
	l.checkFormat()
	l.checkModel()
	l.checkKernel()
	l.checkRetire()
	if problem := badAddress(l.config.HTTP.Listen, 0); problem != "" {
		l.fault("http.listen", "%s", problem)
	}
	if l.config.Snapshot.File == "" {
		l.fault("snapshot.file", "want a file name; the state is not kept without one")
	}
}

func (l *loader) checkKafka() {
	c := l.config
	if len(c.Kafka.Brokers) == 0 {
		l.fault("kafka.brokers", "want at least one address host:port")
	}
	for _, broker := range c.Kafka.Brokers {
		host, _, _ := net.SplitHostPort(broker)
		if problem := badAddress(broker, 1); problem != "" {
			l.fault("kafka.brokers", "%s: %s", quoted(broker), problem)
		} else if host == "" {
			l.fault("kafka.brokers", "%s: has no host", quoted(broker))
		}
	}
	if topic := byName["kafka.topic"]; c.Kafka.Topic == "" {
		l.fault(topic.Name, "is required; set it in the file, as %s or as %s", topic.Flag, topic.Env)
	} else if !validTopic(c.Kafka.Topic) {
		l.fault(topic.Name, "not a topic's name: want at most 249 letters, digits or . _ -")
	}
	if c.DeadLetters.Policy == DeadLettersQueue && !l.bad["kafka.topic"] && c.Kafka.Topic != "" {
		switch {
		case c.DeadLetters.Topic == c.Kafka.Topic:
			l.fault("dead_letters.topic", "is the topic that is read; dead letters would be read again")
		case !validTopic(c.DeadLetters.Topic) && validTopic(c.Kafka.Topic):
			l.fault("dead_letters.topic", "%s is not a topic's name: want at most 249 letters, digits or . _ -", quoted(c.DeadLetters.Topic))
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

	sasl := c.Kafka.SASL
	for _, field := range []struct{ name, value string }{
		{"kafka.sasl.username", sasl.Username}, {"kafka.sasl.password_file", sasl.PasswordFile},
	} {
		switch {
		case l.bad["kafka.sasl.mechanism"]:
		case sasl.Mechanism == MechanismNone && field.value != "":
			l.fault(field.name, "is set, but kafka.sasl.mechanism is none")
		case sasl.Mechanism != MechanismNone && field.value == "":
			l.fault(field.name, "is required with kafka.sasl.mechanism: %s", sasl.Mechanism)
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
	if most := l.config.Limits.Features; len(f.Features) > most && !l.bad["limits.features"] {
		l.fault("format.features", "%d features, but limits.features is %d", len(f.Features), most)
	}
	seen := map[string]bool{}
	for _, name := range f.Features {
		switch {
		case name == f.Label || name == f.Weight:
			l.fault("format.features", "%s is the label or the weight", quoted(name))
		case seen[name]:
			l.fault("format.features", "%s is named twice", quoted(name))
		}
		seen[name] = true
	}
}

func (l *loader) checkKernel() {
	c := l.config
	if c.Kernel.Function == KernelNone || l.bad["kernel.function"] {
		return
	}
	if c.Sample.Rows == 0 && !l.bad["sample.rows"] {
		l.fault("kernel.function", "a basis is chosen from the sample, and sample.rows is 0")
	}
	if c.Model.Standardise == SwitchAuto && !l.bad["model.standardise"] {
		l.fault("model.standardise", "auto does not go together with a kernel: features are scaled before they get to it, or not")
	}
	if c.Kernel.Regulariser != RegulariserKernel {
		return
	}
	if k, auto := c.Kernel.Function.Kernel(); !auto && !k.Semidefinite() {
		l.fault("kernel.regulariser", "%s is not positive semidefinite, so that u'K(Z,Z)u is no size", c.Kernel.Function)
	}
	if c.Model.Refine != RefineNone && !l.bad["model.refine"] {
		l.fault("kernel.regulariser", "kernel does not go together with model.refine: %s, which has a size of its own", c.Model.Refine)
	}
}

func (l *loader) checkModel() {
	m := l.config.Model
	if !namePattern.MatchString(m.Name) {
		l.fault("model.name", "want 1 to 64 letters, digits or . _ -")
	}
	if m.Balanced && len(m.ClassWeights) > 0 && !l.bad["model.balanced"] {
		l.fault("model.class_weights", "cannot go together with model.balanced: true; it weighs the classes itself")
	}
	if m.Folds == 1 {
		l.fault("model.folds", "want 0, for none, or at least 2")
	}
	needs := func(name, value, needed string, is bool) {
		if is && !l.bad[needed] && !l.bad[name] {
			l.fault(name, "%s needs %s, which is 0", value, needed)
		}
	}
	noFolds, noSample := m.Folds == 0, l.config.Sample.Rows == 0
	needs("model.nu", "auto", "model.folds", m.Nu == NuAuto && noFolds)
	needs("model.refine", string(m.Refine), "sample.rows", m.Refine != RefineNone && m.Rows == RowsSample && noSample)
	curve := m.Calibration == CalibrationPlatt || m.Calibration == CalibrationIsotonic
	needs("model.calibration", string(m.Calibration), "model.folds", curve && noFolds)
	needs("model.calibration", string(m.Calibration), "sample.rows", curve && noSample)
	if m.Standardise == SwitchAuto && m.Nu != NuAuto && !l.bad["model.nu"] {
		l.fault("model.standardise", "auto goes together with model.nu: auto")
	}
	if most := l.config.Limits.Classes; len(m.ClassWeights) > most && !l.bad["limits.classes"] {
		l.fault("model.class_weights", "%d classes, but limits.classes is %d", len(m.ClassWeights), most)
	}
}

func (l *loader) checkRetire() {
	if l.bad["retire.keep"] {
		return
	}
	r := l.config.Retire
	for _, bound := range []struct {
		keep Keep
		set  bool
	}{{KeepBlocks, r.Blocks != 0}, {KeepRows, r.Rows != 0}, {KeepAge, r.Age != 0}} {
		name := "retire." + string(bound.keep)
		switch {
		case bound.set && r.Keep != bound.keep:
			l.fault(name, "is set, but retire.keep is %s", r.Keep)
		case !bound.set && r.Keep == bound.keep:
			l.fault(name, "is required with retire.keep: %s, and greater than 0", r.Keep)
		}
	}
}

func validTopic(name string) bool {
	return topicPattern.MatchString(name) && name != "." && name != ".."
}

// badAddress says what is wrong with host:port, if anything.
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

// Warnings returns what is allowed but seldom meant, a sentence each.
func (c *Config) Warnings() []string {
	var warnings []string
	if host, _, _ := net.SplitHostPort(c.HTTP.Listen); c.HTTP.AdminTokenFile == "" && !loopback(host) {
		warnings = append(warnings, "http.listen is "+c.HTTP.Listen+" and http.admin_token_file is empty: whoever reaches that address can retire blocks")
	}
	plain := c.Kafka.SASL.Mechanism == MechanismPlain && !c.Kafka.TLS.Enabled
	if plain && slices.ContainsFunc(c.Kafka.Brokers, func(b string) bool {
		host, _, _ := net.SplitHostPort(b)
		return !loopback(host)
	}) {
		warnings = append(warnings, "kafka.sasl.mechanism is plain and kafka.tls.enabled is false: the password crosses the network in the clear")
	}
	return warnings
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
