package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"streamd/config"
)

const top = "../.." // of the checkout

func readFile(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// effective loads the configuration of some variables, and fails for unknown ones.
func effective(t *testing.T, variables ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Sources{Env: variables})
	if err != nil {
		t.Fatalf("%q: %v", variables, err)
	}
	return cfg
}

// parses fails unless streamd takes a command line.
func parses(t *testing.T, words ...string) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), append(slices.Clone(words), "--help"), nil, strings.NewReader(""), &out, &out)
	if err != nil || !strings.Contains(out.String(), "Usage: streamd "+words[0]) {
		t.Errorf("streamd %q: %v, %s", words, err, &out)
	}
}

// dockerfile returns its instructions as name and text, continued lines joined.
func dockerfile(t *testing.T) (instructions [][2]string) {
	text := strings.ReplaceAll(readFile(t, top, "config/deploy/Dockerfile"), "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		instructions = append(instructions, [2]string{name, rest})
	}
	return instructions
}

// imageVariables are those of the image, as NAME=VALUE.
func imageVariables(t *testing.T) (variables []string) {
	for _, i := range dockerfile(t) {
		if i[0] == "ENV" {
			variables = strings.Fields(i[1])
		}
	}
	return variables
}

// The Dockerfile's own command builds a static program without the embedded broker.
// The image runs it as an unprivileged user, with existing variables and commands.
func TestDockerfile(t *testing.T) {
	const program = "/usr/local/bin/streamd"
	last := map[string]string{}
	for _, i := range dockerfile(t) {
		if i[0] == "FROM" {
			clear(last)
			if version, ok := strings.CutPrefix(i[1], "golang:"); ok {
				version, _, _ = strings.Cut(version, "-")
				if !strings.Contains(readFile(t, top, "go.mod"), "\ngo "+version+".") {
					t.Errorf("it builds with Go %s, and go.mod asks for another", version)
				}
			}
		}
		if i[0] == "RUN" && strings.Contains(i[1], "go build") {
			buildsStatic(t, i[1])
		}
		last[i[0]] += i[1] + "\n"
	}
	if last["FROM"] != "scratch\n" || last["USER"] != "65532:65532\n" {
		t.Errorf("the last stage is from %q, with the user %q", last["FROM"], last["USER"])
	}
	if !strings.Contains(last["COPY"], "--from=build /out/streamd "+program+"\n") {
		t.Errorf("the program is not copied to %s: %s", program, last["COPY"])
	}
	variables := strings.Fields(last["ENV"])
	if cfg := effective(t, append(variables, "STREAMD_KAFKA_TOPIC=orders", "STREAMD_HTTP_OPEN=true")...); filepath.Dir(cfg.Snapshot.File) != strings.TrimSpace(last["VOLUME"]) || !strings.HasSuffix(cfg.HTTP.Listen, ":"+strings.TrimSpace(last["EXPOSE"])) {
		t.Errorf("volume %q for %s, port %q for %s", last["VOLUME"], cfg.Snapshot.File, last["EXPOSE"], cfg.HTTP.Listen)
	}
	exec := func(text string) (words []string) {
		if err := json.Unmarshal([]byte(text), &words); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return words
	}
	if entry := exec(last["ENTRYPOINT"]); !slices.Equal(entry, []string{program}) {
		t.Errorf("the entry point is %q", entry)
	}
	parses(t, exec(last["CMD"])...)
	_, check, _ := strings.Cut(last["HEALTHCHECK"], "CMD ")
	if words := exec(check); words[0] != program {
		t.Errorf("the health check is %q", words)
	} else {
		parses(t, words[1:]...)
	}
}

// buildsStatic runs the command of the Dockerfile that builds the program.
func buildsStatic(t *testing.T, command string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "streamd")
	if !strings.Contains(command, "-o /out/streamd ") {
		t.Fatalf("%q does not build /out/streamd", command)
	}
	build := exec.Command("sh", "-c", strings.Replace(command, "/out/streamd", out, 1))
	build.Dir = top
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	program, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program takes a dynamic linker, which the image does not have")
		}
	}
	help, err := exec.Command(out, "--help").Output()
	if err != nil || !strings.Contains(string(help), "\n  run ") || strings.Contains(string(help), "\n  demo ") {
		t.Errorf("%v; its help is\n%s", err, help)
	}
}

// composed is a compose file, as far as tests look at it.
type composed struct{ Services map[string]service }

type service struct {
	Build           struct{ Context, Dockerfile string }
	Command         []string
	Environment     map[string]any
	Ports, Volumes  []string
	Healthcheck     struct{ Test []string }
	StopGracePeriod string                                `yaml:"stop_grace_period"`
	DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
}

func readCompose(t *testing.T, name string) (c composed) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, top, "config/deploy", name)), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// daemon is the configuration of a service of the image, whose command streamd must take. It must
// find the broker, and be closed to other machines.
func (c composed) daemon(t *testing.T, name string) *config.Config {
	t.Helper()
	s, broker := c.Services[name], c.Services["kafka"]
	readFile(t, top, "config/deploy", s.Build.Context, s.Build.Dockerfile)
	variables := imageVariables(t)
	for name, value := range s.Environment {
		variables = append(variables, name+"="+yamlText(t, value))
	}
	cfg := effective(t, variables...)
	if s.Command != nil {
		parses(t, s.Command...)
	}
	if advertised := yamlText(t, broker.Environment["KAFKA_ADVERTISED_LISTENERS"]); !strings.Contains(advertised, "//"+cfg.Kafka.Brokers[0]+",") {
		t.Errorf("%s looks for %q, the broker advertises %s", name, cfg.Kafka.Brokers, advertised)
	}
	if grace, err := time.ParseDuration(s.StopGracePeriod); err != nil || grace <= cfg.ShutdownTimeout {
		t.Errorf("%s: stop_grace_period %s, %v, with a shutdown_timeout of %s", name, s.StopGracePeriod, err, cfg.ShutdownTimeout)
	}
	for _, port := range s.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:") {
			t.Errorf("%s: port %s is open to other machines", name, port)
		}
	}
	return cfg
}

func TestComposeFile(t *testing.T) {
	file := readCompose(t, "compose.yaml")
	broker := file.Services["kafka"]
	if cfg := file.daemon(t, "streamd"); !slices.Contains(file.Services["topic"].Command, "--topic="+cfg.Kafka.Topic) {
		t.Errorf("the daemon reads %s, and %q makes another topic", cfg.Kafka.Topic, file.Services["topic"].Command)
	}
	for _, port := range broker.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:") {
			t.Errorf("the broker's port %s is open to other machines", port)
		}
	}
	// The image makes a property of each variable. The test broker's properties are
	// known to a broker.
	properties := readFile(t, top, "testdata/kafka/kafka.sh")
	for name := range broker.Environment {
		property := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "KAFKA_"), "_", "."))
		if name != "CLUSTER_ID" && !strings.Contains(properties, "\n"+property+"=") {
			t.Errorf("%s: the test broker has no %s", name, property)
		}
	}
}

// Over compose.yaml, the stages share their features, and the replicas share nothing but the topic.
func TestComposeFileOfStages(t *testing.T) {
	file, over := readCompose(t, "compose.yaml"), readCompose(t, "compose.stages.yaml")
	for name, s := range over.Services {
		if base, ok := file.Services[name]; ok { // compose adds what the later file has
			maps.Copy(base.Environment, s.Environment)
			maps.Copy(base.DependsOn, s.DependsOn)
			s = base
		}
		file.Services[name] = s
	}
	stage := file.Services["summarise"]
	rows, one, two := file.daemon(t, "summarise"), file.daemon(t, "streamd"), file.daemon(t, "replica")
	if topic := file.Services["topic"].Command; !slices.Contains(topic, "--topic="+rows.Kafka.Topic) {
		t.Errorf("the stage reads %s, and %q makes another topic", rows.Kafka.Topic, topic)
	}
	if !slices.Contains(stage.Command, "--to="+one.Kafka.Topic) || one.Kafka.Topic != two.Kafka.Topic {
		t.Errorf("%q for replicas that read %s and %s", stage.Command, one.Kafka.Topic, two.Kafka.Topic)
	}
	if !slices.Equal(rows.Format.Features, one.Format.Features) || !slices.Equal(one.Format.Features, two.Format.Features) {
		t.Errorf("features %q, %q and %q", rows.Format.Features, one.Format.Features, two.Format.Features)
	}
	a, b := file.Services["streamd"], file.Services["replica"]
	if one.Kafka.Group == two.Kafka.Group || slices.Equal(a.Ports, b.Ports) || slices.Equal(a.Volumes, b.Volumes) {
		t.Errorf("the replicas share the group %s, the ports %q or the volumes %q", one.Kafka.Group, a.Ports, a.Volumes)
	}
	if check := stage.Healthcheck.Test; len(check) < 3 {
		t.Errorf("the health check of the stage is %q", check)
	} else {
		parses(t, check[2:]...)
	}
	for _, s := range []service{a, b} {
		if s.DependsOn["summarise"].Condition != "service_healthy" {
			t.Errorf("a replica may start before its topic is there: %v", s.DependsOn)
		}
	}
}

// yamlText returns a scalar as an environment variable has it.
func yamlText(t *testing.T, value any) string {
	t.Helper()
	if text, ok := value.(string); ok {
		return text
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestSystemdUnit(t *testing.T) {
	text := readFile(t, top, "config/deploy/streamd.service")
	settings := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			settings[name] = append(settings[name], value)
		}
	}
	words := strings.Fields(settings["ExecStart"][0])
	parses(t, words[1:]...)
	cfg := effective(t, append(settings["Environment"], "STREAMD_KAFKA_TOPIC=orders")...)
	if want := "%S/" + settings["StateDirectory"][0]; filepath.Dir(cfg.Snapshot.File) != want {
		t.Errorf("the snapshot is %s; the unit may write to %s", cfg.Snapshot.File, want)
	}
	if stop, err := time.ParseDuration(settings["TimeoutStopSec"][0]); err != nil || stop <= cfg.ShutdownTimeout {
		t.Errorf("TimeoutStopSec=%v, %v, with a shutdown_timeout of %s", stop, err, cfg.ShutdownTimeout)
	}
	if settings["RestartPreventExitStatus"][0] != "2" || settings["DynamicUser"][0] != "yes" {
		t.Errorf("%v", settings)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("not verified by systemd itself:", err)
		return
	}
	unit := filepath.Join(t.TempDir(), "streamd.service")
	executable, err := os.Executable() // any existing program
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(text, words[0], executable)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// 2.0 of 10 where 10 is a service without any restriction.
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", unit).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
