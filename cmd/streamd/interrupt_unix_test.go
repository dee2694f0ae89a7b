//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A command that reads what never comes ends within a second of the first signal. The files are
// FIFOs that nobody writes to, so that even opening them hangs, and an input that stays open. The
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
	for _, args := range [][]string{
		{"predict", "rows.csv", "--model", fifo},
		{"predict", fifo, "--model", fifo},
		{"replay", "file", fifo, "--topic", "t", "--brokers", "127.0.0.1:1"},
		{"plot", fifo},
		{"run", "-c", fifo},
		{"run", "-c", fifo, "--check"},
		{"receipts", "verify", fifo, "--key", fifo},
		{"letters", "list", "--topic", "t", "--brokers", "127.0.0.1:1"},
		{"bench", "gram"},
		{"demo"},
	} {
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
			if status := c.ProcessState.ExitCode(); status != 1 && status != 0 || status == 0 && args[0] != "demo" {
				t.Errorf("exit status %d: %s", status, said.String())
			}
		})
	}
}
