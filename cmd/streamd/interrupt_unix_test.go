//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A command that reads what never comes ends within a second of the first signal, and so does one
// that computes and looks at nothing else. The files are FIFOs that nobody writes to, so that even
// opening them hangs, an input that stays open, and rows whose linear systems take a minute. The
// test machine may be slow, hence the slack.
func TestCommandsEndAfterASignal(t *testing.T) {
	const slack = 4 * time.Second
	fifo := filepath.Join(t.TempDir(), "never")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(t.TempDir(), "model.json")
	if err := os.WriteFile(model, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	wide := filepath.Join(t.TempDir(), "wide.csv")
	if err := os.WriteFile(wide, wideRows(60, 3000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"fit", wide},
		{"predict", "rows.csv", "--model", fifo},
		{"predict", fifo, "--model", fifo},
		{"replay", "file", fifo, "--topic", "t", "--brokers", "127.0.0.1:1"},
		{"plot", fifo},
		{"export", fifo, "--sql"},
		{"run", "-c", fifo},
		{"run", "-c", fifo, "--check"},
		{"receipts", "verify", fifo, "--key", fifo},
		{"letters", "list", "--topic", "t", "--brokers", "127.0.0.1:1"},
		{"bench", "gram"},
		{"demo"},
	} {
		computes := args[0] == "fit"
		t.Run(strings.Join(args[:min(2, len(args))], " "), func(t *testing.T) {
			t.Parallel() // most of the time is waiting
			c := exec.Command(os.Args[0], args...)
			c.Args[0] = "streamd"                           // the name by which the test is the program
			c.Env = []string{"STREAMD_SHUTDOWN_TIMEOUT=1s"} // variables of the tests are no settings
			var said strings.Builder
			c.Stderr = &said
			in, err := c.StdinPipe() // stays open
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			select {
			case err := <-ended:
				if !strings.Contains(said.String(), "127.0.0.1:1") { // nobody listens there
					t.Fatalf("it ended by itself: %v: %s", err, said.String())
				}
				return
			case <-time.After(2 * time.Second):
			}
			began := time.Now()
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(time.Second + slack):
				c.Process.Kill()
				t.Fatalf("it has not ended %s after the signal: %s", time.Since(began), said.String())
			}
			if used := c.ProcessState.UserTime(); computes && used < 300*time.Millisecond {
				t.Errorf("it has not computed: %s", used)
			}
			if status := c.ProcessState.ExitCode(); status != 1 && status != 0 || status == 0 && args[0] != "demo" {
				t.Errorf("exit status %d: %s", status, said.String())
			}
		})
	}
}

// wideRows is a CSV of two classes.
func wideRows(rows, features int) (csv []byte) {
	csv = append(csv, "label"...)
	for j := range features {
		csv = fmt.Appendf(csv, ",x%d", j)
	}
	for i := range rows {
		csv = fmt.Appendf(csv, "\n%d", i%2)
		for j := range features {
			csv = fmt.Appendf(csv, ",%d", (i*i+7)*(j+3)%101)
		}
	}
	return append(csv, '\n')
}

// A command that hangs is left behind at its limit, also if it spins. Only the daemon has its own.
func TestWithin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var end atomic.Bool
	defer end.Store(true)
	for name, f := range map[string]func() error{
		"hangs": func() error { <-t.Context().Done(); return nil },
		"spins": func() error {
			for !end.Load() {
			}
			return nil
		},
	} {
		began := time.Now()
		if err := within(ctx, 50*time.Millisecond, f); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "left behind") {
			t.Errorf("one that %s: %v", name, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("one that %s: left after %s", name, took)
		}
	}
	if limit := (&runCmd{}).stopsWithin(); limit != forever {
		t.Errorf("run ends after %s, whatever shutdown_timeout is", limit)
	}
}
