package summarise

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"streamd/cmd/streamd/stage/stagetest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// outage keeps restarts of the broker apart from what tests themselves ask of it. Stages and
// daemons have to live with them.
var outage struct {
	sync.RWMutex
	restarts atomic.Int64
}

// brokerDir is the folder in which testdata/kafka/kafka.sh runs the real broker.
const brokerDir = "STREAMD_TEST_BROKER_DIR"

// restartBroker stops the broker, or kills it if it is a process of its own, and starts it again on
// its port, under all histories that run.
func restartBroker(t testing.TB, kill bool) {
	t.Helper()
	outage.Lock()
	defer outage.Unlock()
	outage.restarts.Add(1)
	address := cluster(t).Brokers[0]
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	if !stagetest.IsReal() {
		stagetest.RestartEmbedded(t)
		return
	}
	dir := os.Getenv(brokerDir)
	if dir == "" {
		t.Fatalf("%s names no folder of a broker that can be restarted: run the test under testdata/kafka/kafka.sh run", brokerDir)
	}
	script := func(args ...string) {
		t.Helper()
		out, err := exec.Command("../../../testdata/kafka/kafka.sh", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("kafka.sh %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if kill {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || pid < 2 {
			t.Fatalf("the pid of the broker is %q", text)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill the broker: %v", err)
		}
		stagetest.Until(t, "the end of the broker", func() bool { // its threads end one after the other
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
	}
	script("stop", dir)
	script("start", dir, port)
}

// adminClient has connections of its own: those of kafka-go's default may be of a former broker.
func adminClient(t testing.TB) *kafkago.Client {
	return &kafkago.Client{Addr: kafkago.TCP(cluster(t).Brokers...), Timeout: time.Minute, Transport: new(kafkago.Transport)}
}

// dropTopics deletes the topics of a test: brokers keep files for each partition.
func dropTopics(t testing.TB, names ...string) {
	outage.RLock()
	defer outage.RUnlock()
	c := adminClient(t)
	defer c.Transport.(*kafkago.Transport).CloseIdleConnections()
	answer, err := c.DeleteTopics(context.WithoutCancel(t.Context()), &kafkago.DeleteTopicsRequest{Topics: names})
	if err != nil {
		t.Logf("the topics %q stay: %v", names, err)
		return
	}
	for name, err := range answer.Errors {
		if err != nil && !errors.Is(err, kafkago.UnknownTopicOrPartition) { // not every test makes all
			t.Logf("the topic %s stays: %v", name, err)
		}
	}
}
