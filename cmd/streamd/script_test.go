package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"streamd/cmd/streamd/access/accesstest"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/ndc"
	"streamd/ingest/wire"
	"streamd/retire"
	"streamd/snapshot"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"streamd": program, "curl": curl})
}

// program is streamd. In a script, which has a folder WORK, it may be slow to end after a signal:
// the machine is busy, and TestCommandsEndAfterASignal has the limit.
func program() {
	if os.Getenv("WORK") != "" {
		interrupted = time.Minute
	}
	main()
}

// curl is as much of that program as the README's commands use.
func curl() {
	flags := flag.NewFlagSet("curl", flag.ExitOnError)
	method := flags.String("X", "", "")
	data := flags.String("d", "", "")
	head := flags.Bool("i", false, "")
	flags.Parse(os.Args[1:])
	if *method == "" && *data != "" {
		*method = http.MethodPost
	}
	request, err := http.NewRequest(*method, flags.Arg(0), strings.NewReader(*data))
	if err == nil {
		var answer *http.Response
		if answer, err = http.DefaultClient.Do(request); err == nil {
			if *head {
				fmt.Println(answer.Proto, answer.Status)
			}
			if _, err = io.Copy(os.Stdout, answer.Body); err == nil && answer.StatusCode >= 400 {
				err = errors.New(answer.Status)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		os.Exit(1)
	}
}

// TestScripts runs the program as its users do. Beside testscript's own
// commands, scripts have the ones below.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Vars = slices.DeleteFunc(env.Vars, func(v string) bool { return strings.HasPrefix(v, "STREAMD_") })
			env.Setenv("STREAMD_SHUTDOWN_TIMEOUT", patience.String())
			frames, err := filepath.Abs("../../testdata/wire") // data frames that pandas has written
			env.Setenv("FRAMES", frames)
			if err != nil {
				return err
			}
			receipts, err := filepath.Abs("../../testdata/receipts")
			env.Setenv("RECEIPTS", receipts)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":       cmdStatus,
			"json":         cmdJSON,
			"same":         cmdSame,
			"ndc":          cmdNDC,
			"wide":         cmdWide,
			"scattered":    cmdScattered,
			"broker":       cmdBroker,
			"readme":       cmdReadme,
			"keyed":        cmdKeyed,
			"compacted":    cmdCompacted,
			"produce":      cmdProduce,
			"until":        cmdUntil,
			"arrived":      cmdArrived,
			"port":         cmdPort,
			"ready":        cmdReady,
			"listening":    cmdListening,
			"certificates": func(ts *testscript.TestScript, neg bool, args []string) { cmdCertificates(t, ts, args) },
			"snapshot":     cmdSnapshot,
			"flip":         cmdFlip,
			"retire":       cmdRetire,
			"fetch":        cmdFetch,
		},
	})
}

// A command whose help or result cannot be written fails with status 1.
func TestFailedWrites(t *testing.T) {
	full := errors.New("no space left")
	r, stdout := io.Pipe()
	r.CloseWithError(full)
	for _, args := range [][]string{{"--help"}, {"help", "replay", "ndc"}, {"fit", "--help"}, {"version"}, {"--version"}, {"completion", "bash"}, {completeCall, "ru"}} {
		err := run(t.Context(), args, nil, strings.NewReader(""), stdout, io.Discard)
		if !errors.Is(err, full) || exitStatus(err) != 1 {
			t.Errorf("%q: %v with status %d", args, err, exitStatus(err))
		}
	}
}

// wide CSV LIBSVM FEATURES writes the same 20 rows as CSV and as LIBSVM. Most numbers are 0.
func cmdWide(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	var csv, libsvm strings.Builder
	for row := range 20 {
		label := "no"
		if row%2 == 1 {
			label = "yes"
		}
		csv.WriteString(label)
		libsvm.WriteString(label)
		for j := range n {
			x := 0
			if j < 10 || j == n-1 || r.IntN(10) == 0 {
				if x = r.IntN(9) - 4; j < 10 {
					x += 8*(row%2) - 4
				}
			}
			fmt.Fprintf(&csv, ",%d", x)
			if x != 0 {
				fmt.Fprintf(&libsvm, " %d:%d", j+1, x)
			}
		}
		csv.WriteByte('\n')
		libsvm.WriteByte('\n')
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(csv.String()), 0o666))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(libsvm.String()), 0o666))
}

// status N program args… runs a program that must end with exit status N.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want || neg {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// fetch PATH FILE writes what the daemon at STREAMD_URL answers to a file.
func cmdFetch(ts *testscript.TestScript, neg bool, args []string) {
	answer, err := http.Get(ts.Getenv("STREAMD_URL") + args[0])
	ts.Check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	ts.Check(err)
	if neg || answer.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s: %s", args[0], answer.Status, body)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), body, 0o644))
}

// lastLine returns the JSON object in the last line of a file.
func lastLine(ts *testscript.TestScript, file string) any {
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(file), "\n"), "\n")
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		ts.Fatalf("the last line of %s is no JSON object: %v", file, err)
	}
	if decoder.More() {
		ts.Fatalf("the last line of %s has more than one JSON object", file)
	}
	return object
}

// field returns the value at a path such as planes.0.w, as JSON.
func field(ts *testscript.TestScript, file, path string) string {
	at := lastLine(ts, file)
	for _, step := range strings.Split(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			var ok bool
			if at, ok = v[step]; !ok {
				ts.Fatalf("%s has no %s: there is no %q", file, path, step)
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				ts.Fatalf("%s has no %s: there is no element %q", file, path, step)
			}
			at = v[i]
		default:
			ts.Fatalf("%s has no %s: there is nothing below %v", file, path, v)
		}
	}
	text, err := json.Marshal(at)
	ts.Check(err)
	return string(text)
}

// json FILE PATH WANT compares a field of the object in the last line of a file.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if got := field(ts, args[0], args[1]); (got == args[2]) == neg {
		ts.Fatalf("%s is %s, compared with %s", args[1], got, args[2])
	}
}

// same FILE FILE PATH… compares fields of two objects.
func cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	for _, path := range args[2:] {
		a, b := field(ts, args[0], path), field(ts, args[1], path)
		if (a == b) == neg {
			ts.Fatalf("%s: %s and %s", path, a, b)
		}
	}
}

// ndc FILE ROWS writes points of seed 1 with three features, as CSV without a
// header.
func cmdNDC(ts *testscript.TestScript, neg bool, args []string) {
	rows, err := strconv.Atoi(args[1])
	ts.Check(err)
	text, err := wire.Encode(nil, wire.CSV, ndcPoints(rows))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o666))
}

// scattered FILE ROWS writes weighted rows of three classes that overlap, with numbers
// whose sums depend on how they are rounded.
func cmdScattered(ts *testscript.TestScript, neg bool, args []string) {
	rows, err := strconv.Atoi(args[1])
	ts.Check(err)
	r := rand.New(rand.NewPCG(11, uint64(rows)))
	var text bytes.Buffer
	text.WriteString("label,v,a,b,c\n")
	for i := range rows {
		class := r.IntN(3)
		fmt.Fprintf(&text, "%c,%v,%v,%v,%v\n", "pqr"[class], float64(1+i%4)/3,
			float64(class)+r.NormFloat64(), 100*(math.Abs(float64(class)-1)+r.NormFloat64()/2), float32(5+r.ExpFloat64()))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text.Bytes(), 0o666))
}

func ndcPoints(rows int) *incremental.Block {
	g, err := ndc.New(ndc.Config{Features: 3, Separability: ndc.Easy, Seed: 1})
	if err != nil {
		panic(err)
	}
	return g.NewSampler().Block(ndc.Train, 0, rows)
}

// broker [plain] starts an embedded broker and sets $BROKER to its address. A plain one has neither
// transactions nor numbered batches.
func cmdBroker(ts *testscript.TestScript, neg bool, args []string) {
	var opts []kfake.Opt
	if slices.Equal(args, []string{"plain"}) {
		opts = append(opts, embedded.WithoutTransactions(false))
	}
	b, err := embedded.Start(ts.MkAbs("broker"), opts...)
	ts.Check(err)
	ts.Defer(b.Close)
	ts.Setenv("BROKER", b.Addr())
}

// readme FILE writes the README's shell commands to a script, with the addresses of this script's
// broker and daemon. What the script leaves running ends with it.
func cmdReadme(ts *testscript.TestScript, neg bool, args []string) {
	text, err := os.ReadFile("../../README.md")
	ts.Check(err)
	script := "trap 'kill $!; wait' EXIT\n"
	for _, found := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(text, -1) {
		script += string(found[1])
	}
	script = strings.NewReplacer("127.0.0.1:9092", ts.Getenv("BROKER"), "127.0.0.1:8080", "127.0.0.1:"+ts.Getenv("PORT")).Replace(script)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(script), 0o666))
}

// patience bounds every wait of a script, also on a slow machine.
const patience = 5 * time.Minute

// keyed TOPIC KEY FILE … writes files as JSON messages with keys to partition 0 of a topic.
func cmdKeyed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args)%2 == 0 {
		ts.Fatalf("usage: keyed topic key file ...")
	}
	write := writer(ts, args[0])
	for i := 1; i < len(args); i += 2 {
		write([]byte(args[i]), wire.JSON.ContentType(), args[i+1])
	}
}

// compacted TOPIC PARTITIONS makes a topic whose records are compacted, and not deleted.
func cmdCompacted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: compacted topic partitions")
	}
	partitions, err := strconv.Atoi(args[1])
	ts.Check(err)
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	// The embedded broker also applies retention.ms to a topic that is only compacted.
	configs := map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"}
	ts.Check(kafka.EnsureTopic(ctx, kafka.Cluster{Brokers: []string{ts.Getenv("BROKER")}}, args[0], partitions, configs))
}

// produce TOPIC FORMAT FILE writes a file as it is, as a message to partition 0 of a topic.
func cmdProduce(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: produce topic format file")
	}
	format, err := wire.ParseFormat(args[1])
	ts.Check(err)
	writer(ts, args[0])(nil, format.ContentType(), args[2])
}

// writer returns a function that writes files as messages to partition 0 of a topic. The file null
// stands for a null value.
func writer(ts *testscript.TestScript, topic string) func(key []byte, contentType, file string) {
	cluster := kafka.Cluster{Brokers: []string{ts.Getenv("BROKER")}}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	ts.Defer(stop)
	ts.Check(kafka.EnsureTopic(ctx, cluster, topic, 1, nil))
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster, Topic: topic}, zerolog.Nop())
	ts.Check(err)
	ts.Defer(p.Close)
	return func(key []byte, contentType, file string) {
		headers := []kafka.Header{{Key: "content-type", Value: []byte(contentType)}}
		var value []byte // of a tombstone
		if file != "null" {
			value = []byte(ts.ReadFile(file))
		}
		ts.Check(p.Write(ctx, 0, key, value, headers, time.Time{}))
		ts.Check(p.Flush(ctx))
	}
}

// until TOPIC PARTITIONS N waits until a topic holds N records or more.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	partitions, err := strconv.Atoi(args[1])
	ts.Check(err)
	want, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	var records int64
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		records = 0
		for p := range partitions {
			conn, err := kafkago.DialLeader(context.Background(), "tcp", ts.Getenv("BROKER"), args[0], p)
			if err != nil {
				continue // the partition is not there yet
			}
			first, last, err := conn.ReadOffsets()
			ts.Check(err)
			records += last - first
			conn.Close()
		}
		if records >= want {
			return
		}
	}
	ts.Fatalf("%s has come to %d records", args[0], records)
}

// arrived TOPIC PARTITIONS prints a JSON object: the records and rows of a topic,
// whether a partition of it is empty, the digest of the rows' state, and a digest of
// the set of payloads.
func cmdArrived(ts *testscript.TestScript, neg bool, args []string) {
	topic := args[0]
	partitions, err := strconv.Atoi(args[1])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var (
		z        incremental.Summariser
		state    *incremental.State
		payloads []string
		empty    bool
	)
	decoder, err := wire.NewDecoder(wire.Options{})
	ts.Check(err)
	for p := range partitions {
		conn, err := kafkago.DialLeader(ctx, "tcp", ts.Getenv("BROKER"), topic, p)
		ts.Check(err)
		defer conn.Close()
		first, last, err := conn.ReadOffsets()
		ts.Check(err)
		empty = empty || first == last
		var batch *kafkago.Batch
		for offset := first; offset < last; offset++ {
			if batch == nil {
				batch = conn.ReadBatch(1, 8<<20)
			}
			m, err := batch.ReadMessage()
			if errors.Is(err, io.EOF) {
				ts.Check(batch.Close())
				batch, offset = nil, offset-1
				continue
			}
			ts.Check(err)
			if len(m.Headers) != 1 || m.Headers[0].Key != "content-type" {
				ts.Fatalf("%s/%d/%d has headers %v", topic, p, offset, m.Headers)
			}
			b, err := decoder.Decode(string(m.Headers[0].Value), m.Value)
			ts.Check(err)
			if state == nil {
				state = incremental.NewState(incremental.DefaultFeatures(len(b.Columns)))
			}
			summary, err := z.Summarise(b)
			ts.Check(err)
			state.Add(summary)
			payloads = append(payloads, string(m.Value))
		}
		if batch != nil {
			batch.Close()
		}
	}
	slices.Sort(payloads)
	hash := sha256.New()
	for _, payload := range payloads {
		fmt.Fprintf(hash, "%d:%s", len(payload), payload)
	}
	fmt.Fprintf(ts.Stdout(), `{"records":%d,"rows":%d,"empty_partition":%t,"state_digest":"%x","payloads":"%x"}`+"\n",
		len(payloads), state.Rows(), empty, state.Digest(), hash.Sum(nil))
}

// port sets $PORT to a free port.
func cmdPort(ts *testscript.TestScript, neg bool, args []string) {
	port, err := freePort()
	ts.Check(err)
	ts.Setenv("PORT", port)
}

// freePort is a port outside the range that systems hand out.
func freePort() (string, error) {
	const first, last = 20_000, 30_000
	for range 1000 {
		port := strconv.Itoa(first + rand.IntN(last-first))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("there is no free port from %d to %d", first, last)
}

// ready ROWS waits until the daemon at $PORT serves a model of ROWS rows; ROWS+ is ROWS or more.
func cmdReady(ts *testscript.TestScript, neg bool, args []string) {
	text, orMore := strings.CutSuffix(args[0], "+")
	want, err := strconv.ParseInt(text, 10, 64)
	ts.Check(err)
	var seen httpapi.ModelAnswer
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://127.0.0.1:" + ts.Getenv("PORT") + "/v1/model")
		if err == nil {
			err = json.NewDecoder(answer.Body).Decode(&seen)
			answer.Body.Close()
		}
		if err == nil && (seen.LiveRows == want || orMore && seen.LiveRows > want) {
			return
		}
	}
	ts.Fatalf("the daemon has come to %d rows", seen.LiveRows)
}

// listening waits until the daemon at $PORT takes connections.
func cmdListening(ts *testscript.TestScript, neg bool, args []string) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+ts.Getenv("PORT")); err == nil {
			conn.Close()
			return
		}
	}
	ts.Fatalf("the daemon takes no connections")
}

// certificates NAME… writes ca.pem of an authority, and NAME.pem and NAME.key of
// each name, for 127.0.0.1.
func cmdCertificates(t *testing.T, ts *testscript.TestScript, names []string) {
	authority := accesstest.NewAuthority(t)
	files := map[string][]byte{"ca.pem": authority.PEM}
	for _, name := range names {
		files[name+".pem"], files[name+".key"] = authority.Issue(t, name)
	}
	for name, text := range files {
		ts.Check(os.WriteFile(ts.MkAbs(name), text, 0o600))
	}
}

// snapshot FILE makes a snapshot of two live blocks.
func cmdSnapshot(ts *testscript.TestScript, neg bool, args []string) {
	store, _, err := snapshot.Open(ts.MkAbs(args[0]), snapshot.Settings{Topic: "orders", Unit: "message"})
	ts.Check(err)
	defer store.Close()
	var z incremental.Summariser
	state := incremental.NewState([]string{"x1", "x2", "x3"})
	change := snapshot.Change{Spaces: []snapshot.SpaceChange{{State: state}}, SavedAt: time.Unix(1_800_000_000, 0)}
	for i := range 2 {
		summary, err := z.Summarise(ndcPoints(100 * (i + 1)))
		ts.Check(err)
		state.Add(summary)
		position := incremental.Position{Topic: "orders", Offset: int64(i)}
		change.Put = append(change.Put, snapshot.Block{
			Entry: retire.Entry{ID: position.String(), Position: position, Last: position.Offset, Time: change.SavedAt, Rows: summary.Rows()},
		})
		change.Spaces[0].Put = append(change.Spaces[0].Put, snapshot.Summary{ID: position.String(), Summary: summary})
	}
	change.Offsets = []snapshot.Offset{{Topic: "orders", Next: 2}}
	_, err = store.Save(change)
	ts.Check(err)
}

// retire FILE ID retires a block of a snapshot explicitly.
func cmdRetire(ts *testscript.TestScript, neg bool, args []string) {
	store, contents, err := snapshot.Open(ts.MkAbs(args[0]), snapshot.Settings{Topic: "orders", Unit: "message"})
	ts.Check(err)
	defer store.Close()
	summary, err := store.Summary(snapshot.Features, args[1])
	ts.Check(err)
	state := contents.Space(snapshot.Features).State
	state.Remove(summary)
	_, err = store.Save(snapshot.Change{Delete: args[1:], Retired: 1, Spaces: []snapshot.SpaceChange{{State: state}}, Counts: contents.Counts, SavedAt: contents.SavedAt.Add(time.Hour)})
	ts.Check(err)
}

// flip FILE TEXT changes a byte of the last occurrence of a text in a file.
func cmdFlip(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	at := bytes.LastIndex(data, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("%s has no %q", filepath.Base(path), args[1])
	}
	data[at] ^= 1
	ts.Check(os.WriteFile(path, data, 0o666))
}
