package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// grammar is a program with a command that takes every key.
type grammar struct {
	Run struct {
		Config string `short:"c" help:"Configuration file."`
		Flags
	} `cmd:"" help:"Run."`
	Version struct{} `cmd:"" help:"Version."`
}

func parse(t *testing.T, args ...string) (*grammar, string, error) {
	t.Helper()
	var cli grammar
	var out bytes.Buffer
	cli.Run.Flags = NewFlags()
	parser, err := kong.New(&cli, kong.Name("streamd"), kong.Writers(&out, &out), kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return &cli, out.String(), err
}

func TestFlagsWithKong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "streamd.yaml")
	if err := os.WriteFile(file, []byte("kafka: {topic: orders}\nmodel: {nu: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cli, _, err := parse(t, "run", "-c", file, "--kafka.topic", "clicks", "--kafka.tls.enabled",
		"--kafka.brokers", "a:1", "--kafka.brokers=b:2,c:3", "--model.class_weights", "spam=2,ham=1",
		"--model.standardise=false", "--workers=2", "--workers=3", "--format.weight=")
	if err != nil {
		t.Fatal(err)
	}
	given := cli.Run.Given()
	if want := map[string]string{
		"kafka.topic": "clicks", "kafka.tls.enabled": "true", "kafka.brokers": "a:1,b:2,c:3",
		"model.class_weights": "spam=2,ham=1", "model.standardise": "false", "workers": "3", "format.weight": "",
	}; !reflect.DeepEqual(given, want) {
		t.Fatalf("given %q, want %q", given, want)
	}

	c, err := Load(Sources{File: cli.Run.Config, FileRequired: true, Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	if c.Kafka.Topic != "clicks" || c.Model.Nu != 3 || !c.Kafka.TLS.Enabled || c.Model.ClassWeights["spam"] != 2 {
		t.Errorf("loaded %+v", c)
	}
}

func TestFlagsNotGiven(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"version"}} {
		cli, _, err := parse(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		if given := cli.Run.Given(); len(given) != 0 {
			t.Errorf("%v: given %q", args, given)
		}
	}
}

// Kong accepts a wrong value: Load reports it with all others.
func TestFlagsLeaveValuesToLoad(t *testing.T) {
	cli, _, err := parse(t, "run", "--kafka.tls.enabled=maybe", "--workers=many", "--retire.keep=most")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Load(Sources{Flags: cli.Run.Given()})
	want := `--kafka.tls.enabled: "maybe": want true or false
--retire.keep: "most": want all, blocks, rows, age, blocks+rows, blocks+age, rows+age or blocks+rows+age
--workers: "many": want a whole number in decimal digits
kafka.topic: is required; set it in the file, as --kafka.topic or as STREAMD_KAFKA_TOPIC`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, _, err := parse(t, "run", "--kafka.topics=a"); err == nil || !strings.Contains(err.Error(), "kafka.topic") {
		t.Errorf("unknown flag: %v", err)
	}
}

func TestFlagsHelp(t *testing.T) {
	_, help, _ := parse(t, "run", "--help")
	flat := strings.Join(strings.Fields(help), " ")
	for _, k := range table {
		if !strings.Contains(flat, k.Flag) || !strings.Contains(flat, strings.Join(strings.Fields(k.Help), " ")) {
			t.Errorf("no %s, or not its help, in\n%s", k.Flag, help)
		}
	}
	if _, other, _ := parse(t, "version", "--help"); strings.Contains(other, "--kafka.topic") {
		t.Error("another command has the flags too")
	}
}
