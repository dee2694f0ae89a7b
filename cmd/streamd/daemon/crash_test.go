package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/config"
	"streamd/ingest/wire"
	"streamd/snapshot"
)

// childVariable makes the test binary run as a daemon that can be killed. It holds the
// flags, one key=value per line.
const childVariable = "STREAMD_TEST_DAEMON"

// fileLimit among the flags limits the size of the child's files, to imitate a full disk.
const fileLimit = "file limit"

// limitFiles sets that limit where the system supports it.
var limitFiles func() error

// heldReading among the flags keeps the child from reading blocks of the log again, so that
// its rebuilds stay unfinished.
const heldReading = "held reading"

// hangingSave among the flags has every save of the child hang after a signal.
const hangingSave = "hanging save"

// holdSaves has the next save of a store hang until release is called.
func holdSaves(s *snapshot.Store) (release func()) {
	lock := (*sync.Mutex)(reflect.ValueOf(s).Elem().FieldByName("writing").Addr().UnsafePointer())
	lock.Lock()
	return lock.Unlock
}

// hangSaves waits for the signal where the system has it.
var hangSaves func(*Daemon)

// child runs the daemon and prints its address, until it is killed or stopped.
func child(flags string) int {
	given := map[string]string{}
	for line := range strings.Lines(flags) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		given[key] = value
	}
	if _, ok := given[fileLimit]; ok {
		delete(given, fileLimit)
		if err := limitFiles(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	_, held := given[heldReading]
	delete(given, heldReading)
	_, hangs := given[hangingSave]
	delete(given, hangingSave)
	cfg, err := config.Load(config.Sources{Flags: given})
	if err == nil {
		var d *Daemon
		if d, err = New(Options{Config: cfg, Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel)}); err == nil {
			if held {
				d.Topic.Hold()
			}
			if hangs {
				hangSaves(d)
			}
			fmt.Println(d.Addr())
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			defer stop()
			err = d.Run(ctx)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// process is a daemon in a process of its own.
type process struct {
	cmd    *exec.Cmd
	addr   string
	stderr strings.Builder // to be read after ended is closed
	ended  chan struct{}
}

func spawn(t *testing.T, flags map[string]string) *process {
	t.Helper()
	var lines strings.Builder
	for k, v := range flags {
		fmt.Fprintf(&lines, "%s=%s\n", k, v)
	}
	p := &process{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+lines.String())
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.addr, err = bufio.NewReader(out).ReadString('\n')
	go func() {
		defer close(p.ended)
		p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	if err != nil {
		p.kill()
		t.Fatalf("the daemon does not start: %s", p.stderr.String())
	}
	p.addr = strings.TrimSpace(p.addr)
	return p
}

// kill sends SIGKILL.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// model returns the digest of the served state and the number of records it has seen.
func (p *process) model() (digest string, rows, seen int64, err error) {
	res, err := http.Get("http://" + p.addr + "/v1/model")
	if err != nil {
		return "", 0, 0, err
	}
	defer res.Body.Close()
	var m struct {
		Digest  string `json:"state_digest"`
		Rows    int64  `json:"live_rows"`
		Offsets []struct {
			Next int64 `json:"next"`
		} `json:"offsets"`
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		return "", 0, 0, nil
	}
	err = json.NewDecoder(res.Body).Decode(&m)
	for _, o := range m.Offsets {
		seen += o.Next
	}
	return m.Digest, m.Rows, seen, err
}

// until polls ok, and fails if the process ends meanwhile.
func (p *process) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.ended:
			t.Fatalf("waiting for %s: the daemon has ended by itself: %s", what, p.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			p.kill()
			t.Fatalf("waiting for %s: it does not come: %s", what, p.stderr.String())
		}
	}
}

// A daemon is killed twenty times (kill -9) at random moments of a replay. Its final state
// is that of an undisturbed run: nothing is missing and nothing counts twice. Most of the
// killed processes have read further than all before them.
func TestKillTwentyTimes(t *testing.T) {
	for _, unit := range []string{"message", "offsets"} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			const blocks, partitions = 3000, 4
			r := rand.New(rand.NewPCG(9, 9))
			name := topic(t, partitions)
			payloads, want := ndcBlocks(t, blocks)
			var messages []message
			for i, payload := range payloads {
				messages = append(messages, message{partition: i % partitions, value: payload, contentType: wire.Arrow.ContentType()})
			}
			flags := map[string]string{
				"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name,
				"http.listen": "127.0.0.1:0", "snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "10ms", "snapshot.blocks": "7",
				"blocks.unit": unit, "blocks.offsets": "10",
				// Small deliveries, so that kills fall between them.
				"kafka.fetch_bytes": "16KiB", "kafka.buffer_bytes": "64KiB",
			}
			const kills, part = 20, blocks / 20
			var most int64 // the highest sum of offsets that a killed process has served
			for kill := range kills {
				produced := make(chan struct{})
				go func() {
					defer close(produced)
					for few := range slices.Chunk(messages[kill*part:(kill+1)*part], 50) {
						produce(t, name, few...)
					}
				}()
				p := spawn(t, flags)
				if kill%4 == 0 {
					// The process may be killed while it joins the group. The broker then
					// keeps a member that no leave request can name, so the next process
					// uses another group.
				} else {
					next := most + 1 + r.Int64N(part/2)
					p.until(t, fmt.Sprintf("%d records", next), func() bool {
						_, _, seen, err := p.model()
						most = max(most, seen)
						return err == nil && seen >= next
					})
				}
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
				p.kill()
				<-produced
			}
			p := spawn(t, flags)
			p.waitFor(t, blocks, live.DigestOf(want))
		})
	}
}

// waitFor waits for the model of that many blocks of ndcBlocks.
func (p *process) waitFor(t *testing.T, blocks int64, want string) {
	t.Helper()
	var digest string
	var rows int64
	p.until(t, fmt.Sprintf("%d records", blocks), func() bool {
		var seen int64
		var err error
		digest, rows, seen, err = p.model()
		return err == nil && seen == blocks
	})
	if rows != blocks*200 || digest != want {
		t.Errorf("%d rows with digest %s, want %d with %s", rows, digest, blocks*200, want)
	}
}

func (p *process) get(t *testing.T, path string) string {
	t.Helper()
	res, err := http.Get("http://" + p.addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
