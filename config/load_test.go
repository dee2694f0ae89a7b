package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"streamd/kernels/reduce"
	"streamd/kernels/rules/document"
)

var update = flag.Bool("update", false, "write the golden files and streamd.example.yaml")

// write puts a file into the test's folder and returns its name.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t testing.TB, from Sources) *Config {
	t.Helper()
	c, err := Load(from)
	if err != nil {
		t.Fatalf("Load:\n%v", err)
	}
	return c
}

// problems loads sources that must fail and returns the problems.
func problems(t testing.TB, from Sources) []document.Problem {
	t.Helper()
	c, err := Load(from)
	var all *Error
	if !errors.As(err, &all) || len(all.Problems) == 0 || c != nil {
		t.Fatalf("Load gave %v and %v, want an *Error with problems", c, err)
	}
	return all.Problems
}

// equal reports whether two configurations have the same values from any sources.
func equal(c, d *Config) bool {
	for _, k := range table {
		if !reflect.DeepEqual(k.in(c).Interface(), k.in(d).Interface()) {
			return false
		}
	}
	return true
}

func TestDefaults(t *testing.T) {
	c := load(t, Sources{Flags: map[string]string{"kafka.topic": "orders"}})
	if got := c.Kafka.Group; got != "streamd.orders.default."+c.Kafka.ClientID {
		t.Errorf("kafka.group is %q", got)
	}
	if got := c.DeadLetters.Topic; got != "orders.dlq" {
		t.Errorf("dead_letters.topic is %q", got)
	}
	if got := c.Kafka.ClientID; !strings.HasPrefix(got, "streamd") {
		t.Errorf("kafka.client_id is %q", got)
	}
	if got := c.Workers; got != runtime.GOMAXPROCS(0) {
		t.Errorf("workers is %d", got)
	}
	if got := c.Kafka.Brokers; !reflect.DeepEqual(got, []string{"127.0.0.1:9092"}) {
		t.Errorf("kafka.brokers is %q", got)
	}
	if c.Kafka.MaxMessageBytes != 64<<20 || c.Limits.Rows != 1<<20 || c.Model.Nu != 1 || c.Retire.Keep != KeepAll {
		t.Errorf("unexpected defaults: %+v", c)
	}
	if w := c.Warnings(); len(w) != 0 {
		t.Errorf("the defaults warn: %q", w)
	}
	if got := c.origins["kafka.topic"]; got != (origin{Source: "--kafka.topic"}) {
		t.Errorf("origin of kafka.topic is %v", got)
	}
	if got := c.origins["model.nu"].String(); got != "default" {
		t.Errorf("origin of model.nu is %q", got)
	}
}

// drawText draws a value that the key allows by itself.
func drawText(rt *rapid.T, k *key, label string) string {
	word := rapid.StringMatching(`[a-z][a-z0-9_.-]{0,8}[a-z0-9]`)
	switch {
	case k.Name == "format.missing_features":
		return word.Draw(rt, label) + "=" + rapid.SampledFrom(k.choices).Draw(rt, label) + ",2=zero"
	case strings.Contains(k.Type, "|"):
		return rapid.SampledFrom(strings.Split(k.Type, "|")).Draw(rt, label)
	case k.Name == "kafka.brokers":
		return word.Draw(rt, label) + ":9092," + word.Draw(rt, label) + ":1"
	case k.Name == "http.listen":
		return "localhost:0" // other addresses need more keys
	case k.Name == "http.cors_origins":
		return "https://" + word.Draw(rt, label) + ",http://" + word.Draw(rt, label) + ":1"
	case k.Name == "http.tls.clients":
		return "" // needs client_ca_file
	case strings.HasSuffix(k.Name, "_file"):
		return "" // the file would have to exist
	}
	n := rapid.Int64Range(2, 1000).Draw(rt, label)
	if k.max.IsValid() && k.max.CanFloat() {
		return fmt.Sprint(k.max.Float() / float64(n))
	}
	switch k.Type {
	case "kernel":
		return fmt.Sprintf("gaussian(gamma=%d)", n)
	case "reducer":
		return fmt.Sprintf("slmc(nu=%d)", n)
	case "string":
		return word.Draw(rt, label)
	case "schema":
		return fmt.Sprintf("{%s: {kind: number, missing: %d}}", word.Draw(rt, label), n)
	case "list":
		return word.Draw(rt, label) + "1," + word.Draw(rt, label) + "2"
	case "roles":
		return rapid.SampledFrom([]string{"read", "predict+read", "retire+admin"}).Draw(rt, label)
	case "map":
		return fmt.Sprintf("%s=%d,2=0.5", word.Draw(rt, label), n)
	case "bool":
		return rapid.SampledFrom([]string{"true", "false"}).Draw(rt, label)
	case "duration":
		return fmt.Sprintf("%ds", n)
	case "size":
		return fmt.Sprintf("%dKiB", n)
	default:
		return fmt.Sprint(n)
	}
}

// written writes values of the environment as a YAML file.
func written(k *key, text string) string {
	items, err := k.split(text)
	if err != nil {
		panic(err)
	}
	value, faults := k.decode(items)
	if len(faults) > 0 {
		panic(faults)
	}
	var b strings.Builder
	parts := strings.Split(k.Name, ".")
	for depth, part := range parts {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", depth), part)
		if depth < len(parts)-1 {
			b.WriteByte('\n')
		}
	}
	return b.String() + " " + formatYAML(value) + "\n"
}

// For every key and value, the flag wins over the environment, the environment over the
// file, and the file over the default. The loader runs without its check, so that each key
// can be tried alone.
func TestPrecedence(t *testing.T) {
	for _, k := range table {
		t.Run(k.Name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				var texts [4]string // default, file, environment, flag
				texts[0] = k.Default
				for i := range texts[1:] {
					texts[i+1] = drawText(rt, k, fmt.Sprint(i+1))
				}
				given := rapid.IntRange(0, 7).Draw(rt, "sources")

				l := newLoader()
				winner, from := 0, origin{}
				if given&1 != 0 {
					settings, problems := parseYAML("file.yaml", []byte(written(k, texts[1])))
					if len(settings) != 1 || len(problems) != 0 {
						rt.Fatalf("the file gives %v and %v", settings, problems)
					}
					l.set(settings[0])
					winner, from = 1, settings[0].origin
				}
				if given&2 != 0 {
					l.environment([]string{"HOME=/", k.Env + "=" + texts[2]})
					winner, from = 2, origin{Source: k.Env}
				}
				if given&4 != 0 {
					l.flags(map[string]string{k.Name: texts[3]})
					winner, from = 3, origin{Source: k.Flag}
				}
				if len(l.problems) > 0 {
					rt.Fatalf("problems: %v", l.problems)
				}
				items, _ := k.split(texts[winner])
				want, _ := k.decode(items)
				if got := k.in(l.config); formatYAML(got) != formatYAML(want) {
					rt.Errorf("got %s, want %s of source %d", formatYAML(got), formatYAML(want), winner)
				}
				if got := l.config.origins[k.Name]; got != from {
					rt.Errorf("origin is %v, want %v", got, from)
				}
			})
		})
	}
}

// NAME.bad.txt has the error of testdata/NAME.bad.yml. Lines "#env NAME=VALUE" and
// "#flag KEY=VALUE" in the file add to its sources.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yml")
	if err != nil || len(files) < 19 {
		t.Fatalf("found %d files (%v), want at least 19", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			from := Sources{File: file, FileRequired: true, Flags: map[string]string{}}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if entry, ok := strings.CutPrefix(strings.TrimSpace(line), "#env "); ok {
					from.Env = append(from.Env, entry)
				} else if entry, ok := strings.CutPrefix(strings.TrimSpace(line), "#flag "); ok {
					name, value, _ := strings.Cut(entry, "=")
					from.Flags[name] = value
				}
			}
			problems(t, from)
			_, err = Load(from)
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".yml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestProblemFields(t *testing.T) {
	file := write(t, "streamd.yaml", "kafka:\n  topic: orders\n  broker: [a:1]\nmodel:\n  nu: much\n")
	got := problems(t, Sources{
		File:  file,
		Env:   []string{"STREAMD_LIMITS_ROWS=-1"},
		Flags: map[string]string{"workers": "x"},
	})
	want := []document.Problem{
		{Source: file, Line: 3, Column: 3, Key: "kafka.broker", Message: "unknown key; did you mean kafka.brokers?"},
		{Source: file, Line: 5, Column: 7, Key: "model.nu", Value: "much", Message: "want a finite number in decimal digits, such as 0.5 or 1e-3, or auto"},
		{Source: "STREAMD_LIMITS_ROWS", Key: "limits.rows", Value: "-1", Message: "want at least 1"},
		{Source: "--workers", Key: "workers", Value: "x", Message: "want a whole number in decimal digits"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestFileTroubles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	topic := map[string]string{"kafka.topic": "orders"}
	load(t, Sources{File: missing, Flags: topic})
	for _, test := range []struct{ file, want string }{
		{missing, "cannot open: no such file"},
		{t.TempDir(), "cannot read: is a directory"},
		{write(t, "large.yaml", strings.Repeat("# comment\n", document.MaxFile/10+1)), "larger than 1024 KiB"},
		{write(t, "wide.yaml", "model: {class_weights: {"+strings.Repeat("a: 1, ", document.MaxTokens/4)+"}}"), "more than 32768 words"},
		{write(t, "deep.yaml", "kafka: "+strings.Repeat("[", 1000)), "nested too deeply"},
		{write(t, "dashes.yaml", strings.Repeat("- ", 10000)), "nested too deeply"},
		{write(t, "stairs.yaml", stairs(300)), "nested too deeply"},
		{write(t, "binary.yaml", "kafka:\n  topic: \xff\n"), ":2:10: not a text file in UTF-8"},
	} {
		got := problems(t, Sources{File: test.file, FileRequired: true, Flags: topic})
		if len(got) != 1 || !strings.HasPrefix(got[0].String(), test.file+":") || !strings.Contains(got[0].String(), test.want) {
			t.Errorf("got %v, want one problem of %s: %s", got, test.file, test.want)
		}
	}
}

// stairs nests by indentation.
func stairs(depth int) string {
	var b strings.Builder
	for i := range depth {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

func TestByteOrderMarkAndCRLF(t *testing.T) {
	c := load(t, Sources{File: write(t, "windows.yaml", "\ufeffkafka:\r\n  topic: orders\r\n")})
	if c.Kafka.Topic != "orders" {
		t.Errorf("kafka.topic is %q", c.Kafka.Topic)
	}
}

func TestEnvironmentOfKubernetes(t *testing.T) {
	env := []string{
		"STREAMD_KAFKA_TOPIC=orders", "STREAMD_CONFIG=x.yaml", "STREAMD_URL=http://x", "STREAMD=1", "HOME=/",
		"STREAMD_SERVICE_HOST=10.0.0.1", "STREAMD_SERVICE_PORT=80", "STREAMD_SERVICE_PORT_HTTP=80",
		"STREAMD_PORT=tcp://10.0.0.1:80", "STREAMD_PORT_80_TCP=tcp://10.0.0.1:80",
		"STREAMD_PORT_80_TCP_PROTO=tcp", "STREAMD_PORT_80_TCP_PORT=80", "STREAMD_PORT_80_TCP_ADDR=10.0.0.1",
		"STREAMD_KAFKA_SERVICE_HOST=10.0.0.2", "STREAMD_KAFKA_PORT_9092_TCP=tcp://10.0.0.2:9092",
	}
	load(t, Sources{Env: env})
	for _, k := range table {
		if serviceLink.MatchString(k.Env) || k.Env == FileVariable || k.Env == URLVariable {
			t.Errorf("%s would be passed over", k.Env)
		}
	}
	got := problems(t, Sources{Env: append(env, "STREAMD_KAFKA_TOPICS=a")})
	if len(got) != 1 || got[0].String() != "STREAMD_KAFKA_TOPICS: unknown variable; did you mean STREAMD_KAFKA_TOPIC?" {
		t.Errorf("got %v", got)
	}
}

// The examples of logins.md are read, each with the files that it names.
func TestLoginsDocument(t *testing.T) {
	page, err := os.ReadFile("logins.md")
	if err != nil {
		t.Fatal(err)
	}
	mechanisms := map[Mechanism]bool{}
	parts := strings.Split(string(page), "```yaml\n")
	for _, part := range parts[1:] {
		text, _, _ := strings.Cut(part, "```")
		secret := regexp.MustCompile(`(password_file|client_secret_file): [a-z-]+`)
		text = secret.ReplaceAllString(text, "$1: "+write(t, "secret", "hidden\n"))
		c := load(t, Sources{File: write(t, "streamd.yaml", text), FileRequired: true})
		mechanisms[c.Kafka.SASL.Mechanism] = true
		if w := c.Warnings(); len(w) > 0 {
			t.Errorf("%s\nwarnings: %q", text, w)
		}
	}
	if len(parts) < 8 || len(mechanisms) != 4 {
		t.Errorf("%d examples of %v", len(parts)-1, mechanisms)
	}
}

// Tokens and secrets are not to cross a network in the clear.
func TestTokensInTheClear(t *testing.T) {
	c := load(t, Sources{Flags: map[string]string{
		"kafka.topic": "orders", "kafka.brokers": "kafka.example:9092", "kafka.sasl.mechanism": "oauthbearer",
		"kafka.sasl.oauth.token_url": "http://login.example/token", "kafka.sasl.oauth.client_id": "me",
		"kafka.sasl.oauth.client_secret_file": write(t, "secret", "pa55\n"),
	}})
	if got := c.Kafka.SASL.OAuth.ClientSecret.Reveal(); got != "pa55" {
		t.Errorf("the secret is %q", got)
	}
	w := strings.Join(c.Warnings(), "; ")
	if !strings.Contains(w, "the token crosses") || !strings.Contains(w, "the client's secret crosses") {
		t.Errorf("warnings: %q", w)
	}
	if text := fmt.Sprintf("%v %+v %#v", *c, c, c); strings.Contains(text, "pa55") {
		t.Error("the secret shows")
	}
}

func TestUnknownFlag(t *testing.T) {
	got := problems(t, Sources{Flags: map[string]string{"kafka.topic": "orders", "model.standardize": "true"}})
	if len(got) != 1 || got[0].String() != "--model.standardize: unknown flag; did you mean model.standardise?" {
		t.Errorf("got %v", got)
	}
}

func TestSecrets(t *testing.T) {
	const hidden = "pa55 wörd"
	from := Sources{Flags: map[string]string{
		"kafka.topic": "orders", "kafka.sasl.mechanism": "plain", "kafka.sasl.username": "u",
		"kafka.sasl.password_file": write(t, "password", hidden+"\r\n"),
		"kafka.brokers":            "kafka.example:9092",
	}}
	c := load(t, from)
	if got := c.Kafka.SASL.Password.Reveal(); got != hidden {
		t.Errorf("the password is %q", got)
	}
	var out bytes.Buffer
	if err := c.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out.String(), string(asJSON), fmt.Sprintf("%v %+v %#v %s %q", *c, c, c, c.Kafka.SASL, c.Kafka.SASL)} {
		if strings.Contains(text, "pa55") {
			t.Errorf("a secret shows in %s", text)
		}
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "in the clear") {
		t.Errorf("warnings: %q", w)
	}

	for content, want := range map[string]string{
		"":                               "the file is empty",
		"\n":                             "the file is empty",
		"one\ntwo\n":                     "characters that the secret cannot have",
		strings.Repeat("x", maxSecret+1): "larger than 4 KiB",
	} {
		from.Flags["kafka.sasl.password_file"] = write(t, "password", content)
		got := problems(t, from)
		if len(got) != 1 || !strings.Contains(got[0].Message, want) || content != "" && strings.Contains(got[0].Message, content) {
			t.Errorf("content %.20q: got %v, want %s", content, got, want)
		}
	}
}

// An address that others can reach is served only if callers are identified, or if the
// configuration lets everybody call.
func TestStrangersAreKeptOut(t *testing.T) {
	for listen, local := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, ":1": false, "0.0.0.0:1": false, "host:1": false} {
		flags := map[string]string{"kafka.topic": "orders", "http.listen": listen}
		warnings := func() []string { return load(t, Sources{Flags: flags}).Warnings() }
		if local {
			if got := warnings(); len(got) != 0 {
				t.Errorf("%s: %q", listen, got)
			}
			continue
		}
		if got := problems(t, Sources{Flags: flags}); len(got) != 1 || got[0].Key != "http.listen" || !strings.Contains(got[0].Message, "http.open: true") {
			t.Errorf("%s: %v", listen, got)
		}
		flags["http.open"] = "true"
		if got := warnings(); len(got) != 1 || !strings.Contains(got[0], "can retire blocks") {
			t.Errorf("%s, open: %q", listen, got)
		}
		flags["http.anonymous"] = "read"
		if got := warnings(); len(got) != 0 {
			t.Errorf("%s, open for reading: %q", listen, got)
		}
		delete(flags, "http.open")
		flags["http.tokens_file"] = "tokens"
		if got := warnings(); len(got) != 1 || !strings.Contains(got[0], "in the clear") {
			t.Errorf("%s, with tokens: %q", listen, got)
		}
	}
}

func TestRoles(t *testing.T) {
	for text, want := range map[string]Roles{"": "", "read": "read", "admin+read": "read+admin", "retire+predict+read": "read+predict+retire"} {
		if got, err := ParseRoles(text); err != nil || got != want {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"write", "read,predict", "read+", "+", "read+read", "Read", " read"} {
		if got, err := ParseRoles(text); err == nil {
			t.Errorf("%q is taken for %q", text, got)
		}
	}
	for _, role := range roleNames {
		for roles, want := range map[Roles]bool{"": false, "read+retire": role == "read" || role == "retire", "admin": true} {
			if roles.Has(Role(role)) != want {
				t.Errorf("%q has %s: %v", roles, role, !want)
			}
		}
	}
	if got := Roles("admin").With("read+retire"); got != "read+retire+admin" {
		t.Errorf("with: %q", got)
	}
}

// Anonymous callers have no roles where callers can identify themselves, unless the
// configuration gives them some.
func TestAnonymousRoles(t *testing.T) {
	for _, test := range []struct {
		h    HTTP
		want Roles
	}{
		{HTTP{}, "admin"},
		{HTTP{Anonymous: "read"}, "read"},
		{HTTP{TokensFile: "t"}, ""},
		{HTTP{TLS: HTTPTLS{ClientCAFile: "c"}}, ""},
		{HTTP{TokensFile: "t", Anonymous: "read+predict"}, "read+predict"},
	} {
		if got := test.h.AnonymousRoles(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.h, got, test.want)
		}
	}
}

// The output of WriteYAML loads to the same values.
func TestWriteYAMLRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLoader()
		for _, k := range table {
			if k.Name == "kafka.topic" || rapid.Bool().Draw(rt, k.Name) {
				l.text(k, origin{Source: "--" + k.Name}, drawText(rt, k, k.Name))
			}
		}
		// Any text that the key accepts.
		l.config.Format.Label = rapid.StringMatching(`[^\pC]{1,6}`).Draw(rt, "label")
		l.derive()
		var out bytes.Buffer
		if err := l.config.WriteYAML(&out); err != nil {
			rt.Fatal(err)
		}
		again := newLoader()
		settings, problems := parseYAML("again.yaml", out.Bytes())
		for _, s := range settings {
			again.set(s)
		}
		problems = append(problems, again.problems...)
		if len(problems) > 0 || len(settings) != len(table) {
			rt.Fatalf("%d settings of %d keys, problems %v, in\n%s", len(settings), len(table), problems, &out)
		}
		if !equal(again.config, l.config) {
			rt.Errorf("other values come back from\n%s", &out)
		}
	})
}

func TestWriteYAMLNamesOrigins(t *testing.T) {
	file := write(t, "streamd.yaml", "kafka:\n  topic: orders\n")
	c := load(t, Sources{File: file, Env: []string{"STREAMD_MODEL_NU=2"}, Flags: map[string]string{"workers": "3"}})
	var out bytes.Buffer
	if err := c.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"  topic: orders  # " + file + ":2:10\n",
		"  nu: 2  # STREAMD_MODEL_NU\n",
		"workers: 3  # --workers\n",
		"  group: streamd.orders.default." + c.Kafka.ClientID + "  # default\n",
	} {
		if !strings.Contains(out.String(), "\n"+line) {
			t.Errorf("no line %q in\n%s", line, &out)
		}
	}
}

// writeExample writes a file that explains every key. All keys but the required one are
// commented out with their defaults. The file means the same without the # before the
// keys.
func writeExample(out *bytes.Buffer) {
	fmt.Fprintf(out, `# The configuration of streamd run, with every key and its default.
#
# Each key is also an environment variable, which wins over this file, and a
# flag, which wins over both: %s, %s.
# Lists are written a,b and maps x=1,y=2 there. Sizes take KiB, MiB, GiB, KB,
# MB, GB; durations ms, s, m, h, d. To see what is in force and where it comes
# from: streamd run --check.

`, byName["kafka.brokers"].Env, byName["kafka.brokers"].Flag)
	required, section := byName["kafka.topic"], "none yet"
	writeSections(out, func(k *key, indent string) {
		if k.section() == section {
			fmt.Fprintln(out)
		}
		section = k.section()
		help := k.Help
		if k == required {
			help += " Required."
		}
		if strings.Contains(k.Type, "|") {
			help += " One of " + document.OneOf(strings.Split(k.Type, "|")) + "."
		}
		for _, line := range wrapped(help, 76-len(indent)) {
			fmt.Fprintf(out, "%s# %s\n", indent, line)
		}
		if k == required {
			fmt.Fprintf(out, "%s%s: blocks\n", indent, k.last())
		} else {
			fmt.Fprintf(out, "%s#%s: %s\n", indent, k.last(), formatYAML(k.fallback))
		}
	})
}

// wrapped breaks a text at blanks into lines of at most width bytes.
func wrapped(text string, width int) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

const exampleFile = "streamd.example.yaml"

func TestExample(t *testing.T) {
	var out bytes.Buffer
	writeExample(&out)
	if *update {
		if err := os.WriteFile(exampleFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, out.Bytes()) {
		t.Errorf("%s is not what the keys say; go generate ./config writes it anew", exampleFile)
	}

	defaults := load(t, Sources{Flags: map[string]string{"kafka.topic": "blocks"}})
	if c := load(t, Sources{File: exampleFile, FileRequired: true}); !equal(c, defaults) {
		t.Error("as it stands, it is not the defaults")
	}

	commented := regexp.MustCompile(`(?m)^( *)#(\S)`)
	all := commented.ReplaceAllString(string(text), "$1$2")
	c := load(t, Sources{File: write(t, "all.yaml", all)})
	if !equal(c, defaults) {
		t.Error("with every key, it is not the defaults")
	}
	if len(table) < 50 {
		t.Errorf("only %d keys", len(table))
	}
	for _, k := range table {
		if c.origins[k.Name].Line == 0 {
			t.Errorf("%s is not in it", k.Name)
		}
	}
}

// The help of the key names every reducer, and settings are checked when they are read.
func TestReduce(t *testing.T) {
	k := byName["kernel.reduce"]
	for _, name := range reduce.Names() {
		if !strings.Contains(k.Help, name) {
			t.Errorf("the help %q lacks %s", k.Help, name)
		}
	}
	with := func(function, value string) Sources {
		return Sources{Flags: map[string]string{"kafka.topic": "t", "kernel.function": function, "kernel.reduce": value}}
	}
	c := load(t, with("gaussian", "cs(fresh=50,nu=6)"))
	if got, ok := c.Kernel.Reduce.Reducer(20).(reduce.ChunkingSynthetic); !ok || got.Fresh != 50 || got.Nu != 6 {
		t.Errorf("%+v", got)
	}
	c = load(t, with("gaussian", "eigen"))
	if got, ok := c.Kernel.Reduce.Reducer(2000).(reduce.Eigen); !ok || got.Points != 2000 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []struct{ function, value, want string }{
		{"gaussian", "best", "want one of cs"}, {"gaussian", "slmc(nu=0)", "positive"}, {"sigmoid(a=1,b=0)", "slmc(nu=2)", "not positive semidefinite"},
	} {
		if all := problems(t, with(bad.function, bad.value)); !strings.Contains(all[0].String(), bad.want) {
			t.Errorf("%s: %v", bad.value, all)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, k := range table {
		if !strings.HasSuffix(k.Help, ".") || len(k.Help) > 140 {
			t.Errorf("%s: help %q is not a short sentence", k.Name, k.Help)
		}
	}
	k := byName["kafka.max_message_bytes"]
	got := []any{k.Name, k.Flag, k.Env, k.Type, k.Default, k.Help}
	want := []any{
		"kafka.max_message_bytes", "--kafka.max_message_bytes", "STREAMD_KAFKA_MAX_MESSAGE_BYTES",
		"size", "64MiB", "Largest message, also after decompression.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// FuzzLoad looks for a panic, and for an accepted file whose effective configuration is
// refused.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.bad.yml")
	if err != nil || len(files) == 0 {
		f.Fatal(err, len(files))
	}
	for _, file := range append(files, exampleFile) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "a,b=2", "true")
	}
	f.Add([]byte("kafka: {topic: a, brokers: [a:1, 'b:2']}\nmodel:\n  class_weights: {? x : 1}"), "1d2h", "1GiB")
	f.Add([]byte("a: &x [*x]\n---\n!!str <<: |\n"), "", "-9223372036854775808")
	f.Add([]byte("# a carriage return alone ends a line\rs"), "", "")
	f.Fuzz(func(t *testing.T, file []byte, env, flag string) {
		// YAML ends lines in three ways.
		lines := 1 + strings.Count(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(file)), "\n")
		l := newLoader()
		settings, problems := parseYAML("fuzz.yaml", file)
		for _, s := range settings {
			l.set(s)
		}
		for _, p := range append(problems, l.problems...) {
			if p.Source != "fuzz.yaml" || p.Message == "" || p.Line < 0 || p.Line > lines {
				t.Errorf("problem without a place: %+v", p)
			}
			if strings.Contains(p.String(), "\n") || len(p.String()) > 1000 {
				t.Errorf("not one short line: %q", p)
			}
		}
		variables, flags := []string{}, map[string]string{}
		for _, k := range table {
			variables, flags[k.Name] = append(variables, k.Env+"="+env), flag
		}
		l.environment(variables)
		l.flags(flags)
		l.derive()
		l.check()

		var out bytes.Buffer
		if err := l.config.WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		again := newLoader()
		settings, problems = parseYAML("again.yaml", out.Bytes())
		for _, s := range settings {
			again.set(s)
		}
		if problems = append(problems, again.problems...); len(problems) > 0 || !equal(again.config, l.config) {
			t.Errorf("%v\nin the effective configuration\n%s", problems, &out)
		}
	})
}
