package daemon

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/ingest/kafka"
)

// peak is the highest memory use of a process in bytes, mapped pages of files included.
func peak(t *testing.T, p *process) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) < 2 || string(fields[1]) != "kB" {
		t.Fatalf("%s", status)
	}
	n, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// sparse is a LIBSVM payload with a row of each class.
func sparse(classes, features int) []byte {
	var b bytes.Buffer
	for c := range classes {
		fmt.Fprintf(&b, "%d %d:%d\n", c, 1+c%features, c+1)
	}
	fmt.Fprintf(&b, "0 %d:1\n", features)
	return b.Bytes()
}

// Small messages may need sums of many times the available memory. They are refused with
// their price. The daemon stays below its limit, keeps running and keeps learning, also
// after a restart.
func TestWideMessagesStayBelowTheLimit(t *testing.T) {
	const limit, asLIBSVM = 512 << 20, "application/x-libsvm"
	name := topic(t, 1)
	var messages []message
	send := func(n int, payload []byte) {
		for range n {
			messages = append(messages, message{value: payload, contentType: asLIBSVM})
		}
	}
	send(3, sparse(400, 4096)) // 27 GB each
	send(10, sparse(2, 4096))  // 134 MB each, with sums of 3.2 GB
	wide := len(messages)
	r := rand.New(rand.NewPCG(51, 51))
	honest := func() []byte {
		var b bytes.Buffer
		for i := range 50 {
			fmt.Fprintf(&b, "%d", i%2)
			for j := range 20 {
				fmt.Fprintf(&b, " %d:%.3f", j+1, float64(i%2)+r.NormFloat64())
			}
			b.WriteString("\n")
		}
		return b.Bytes()
	}
	for range 20 {
		send(1, honest())
	}
	send(1, []byte("0 1:1e-44 20:3e38\n1 1:-1e-44 2:3e38\n")) // widens every sum
	send(1, sparse(990, 20))                                  // more classes, until there is no room
	for range 20 {
		send(1, honest())
	}
	produce(t, name, messages...)
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "http.listen": "127.0.0.1:0",
		"snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "50ms",
		"limits.memory": "512MiB", "model.nu": "auto",
	}
	for range 2 {
		p := spawn(t, flags)
		p.until(t, "all messages", func() bool {
			_, rows, seen, err := p.model()
			return err == nil && seen == int64(len(messages)) && rows >= 2000
		})
		if most := peak(t, p); most > limit {
			t.Errorf("the process had %s, its limit is %s", memory.Size(float64(most)), memory.Size(limit))
		} else {
			t.Logf("the process had %s of %s", memory.Size(float64(most)), memory.Size(limit))
		}
		p.kill()
	}
	var refused []string
	letters := &collector{next: map[int]int64{}}
	letters.take = func(r *kafka.Record) {
		l, err := kafka.ReadDeadLetter(r)
		if err != nil {
			t.Error(err)
			return
		}
		if l.Offset < int64(wide) {
			refused = append(refused, l.Reason.Message)
		}
	}
	letters.run(t, name+".dlq", func() bool { return len(refused) >= wide })
	for _, why := range refused {
		if !strings.Contains(why, "4096 features") || !strings.Contains(why, "limits.memory, 512 MiB, leaves") {
			t.Errorf("a dead letter says %s", why)
		}
	}
}

// Admitted blocks stay below the limit when their sums take nearly all of it, they come at
// full speed, and saves, solves and studies run at the same time.
func TestAdmittedBlocksStayBelowTheLimit(t *testing.T) {
	const limit, n, classes, blocks = 512 << 20, 120, 16, 200
	name := topic(t, 4)
	r := rand.New(rand.NewPCG(52, 52))
	var messages []message
	for i := range blocks {
		var b bytes.Buffer
		for c := range classes {
			fmt.Fprintf(&b, "%d", c)
			for j := range n {
				fmt.Fprintf(&b, " %d:%.3f", j+1, r.NormFloat64())
			}
			b.WriteString("\n")
		}
		messages = append(messages, message{partition: i % 4, value: b.Bytes(), contentType: "application/x-libsvm"})
	}
	produce(t, name, messages...)
	cfg := load(t, map[string]string{"kafka.topic": name, "sample.rows": "1000", "model.nu": "auto"})
	m := memory.New(cfg, limit)
	s := memory.Shape{Features: n, Classes: classes}
	if price := m.Price([]memory.Shape{s}, blocks) + memory.Copies*s.Summary(); price < m.Room()/2 || price > m.Room() {
		t.Fatalf("a price of %s is not what there is room for, %s", memory.Size(price), memory.Size(m.Room()))
	}
	p := spawn(t, map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "http.listen": "127.0.0.1:0",
		"snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "10ms",
		"limits.memory": "512MiB", "model.nu": "auto", "model.refine_interval": "10ms", "sample.rows": "1000",
	})
	p.until(t, "all blocks", func() bool {
		_, rows, _, err := p.model()
		return err == nil && rows == blocks*classes
	})
	if most := peak(t, p); most > limit {
		t.Errorf("the process had %s, its limit is %s", memory.Size(float64(most)), memory.Size(limit))
	} else {
		t.Logf("the process had %s of %s", memory.Size(float64(most)), memory.Size(limit))
	}
}
