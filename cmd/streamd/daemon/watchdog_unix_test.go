//go:build unix

package daemon

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func init() {
	hangSaves = func(d *Daemon) {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGUSR1)
		go func() {
			<-signals
			holdSaves(d.Store)
		}()
	}
}

// flagsOfChild are those of a child that saves often.
func flagsOfChild(t *testing.T, topic string) map[string]string {
	return map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": topic, "http.listen": "127.0.0.1:0", "format.default": "json",
		"snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "10ms",
	}
}

// ends waits for the process to end, and returns its exit status.
func (p *process) ends(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		p.kill()
		t.Fatalf("it does not end within %s: %s", within, p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// slack is for a machine that is busy with other things.
const slack = 10 * time.Second

// A save hangs. The process is gone at shutdown_timeout, and says what it has waited for.
func TestStopThatHangs(t *testing.T) {
	name := topic(t, 1)
	produce(t, name, message{value: []byte(`[{"label":0,"x":1},{"label":1,"x":3}]`)})
	flags := flagsOfChild(t, name)
	flags[hangingSave], flags["shutdown_timeout"] = "", "2s"
	p := spawn(t, flags)
	p.until(t, "a model", func() bool {
		_, rows, _, err := p.model()
		return err == nil && rows == 2
	})
	p.cmd.Process.Signal(syscall.SIGUSR1)
	time.Sleep(100 * time.Millisecond)
	produce(t, name, message{value: []byte(`[{"label":0,"x":2},{"label":1,"x":4}]`)})
	p.until(t, "another block", func() bool {
		_, rows, _, err := p.model()
		return err == nil && rows == 4
	})
	began := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.ends(t, 2*time.Second+slack); status != 1 {
		t.Errorf("exit status %d", status)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("it has not waited: %s", took)
	}
	for _, want := range []string{"stopping has not ended within shutdown_timeout, 2s", `snapshot.(*Store).update`, "the stop has waited for this goroutine"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("no %q in %s", want, p.stderr.String())
		}
	}
}

// The pages of the snapshot are damaged under a running daemon. The next save ends the process,
// and says why.
func TestPagesDamagedWhileRunning(t *testing.T) {
	for seed := range uint64(3) {
		name := topic(t, 1)
		r := rand.New(rand.NewPCG(36, seed))
		for i := range 40 {
			produce(t, name, message{value: fmt.Appendf(nil, `[{"label":0,"x":%d},{"label":1,"x":3}]`, i)})
		}
		flags := flagsOfChild(t, name)
		flags["shutdown_timeout"] = "60s"
		p := spawn(t, flags)
		p.until(t, "a save of all", func() bool {
			_, rows, _, err := p.model()
			return err == nil && rows == 80
		})
		time.Sleep(500 * time.Millisecond) // it saves every 10 ms
		f, err := os.OpenFile(flags["snapshot.file"], os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, info.Size()-2*int64(os.Getpagesize()))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if _, err := f.WriteAt(b, 2*int64(os.Getpagesize())); err != nil {
			t.Fatal(err)
		}
		f.Close()
		for i := range 20 {
			produce(t, name, message{value: fmt.Appendf(nil, `[{"label":0,"x":%d},{"label":1,"x":3}]`, i)})
		}
		if status := p.ends(t, 20*time.Second+slack); status != 1 {
			t.Errorf("exit status %d: %s", status, p.stderr.String())
		}
		if text := p.stderr.String(); !strings.Contains(text, "damaged") || !strings.Contains(text, flags["snapshot.file"]) || strings.Contains(text, "goroutine ") {
			t.Errorf("it ends with %s", text)
		}
	}
}
