package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/httpapi"
)

// KafkaSource learns as a user would: a replay writes the points to a topic of
// bounded size while streamd run, in a process of its own, reads it.
type KafkaSource struct {
	Brokers    []string // none: an embedded broker
	Partitions int
}

const (
	// logBytes is what the topic keeps at least, all its partitions together.
	// Brokers look for what is beyond it every log.retention.check.interval.ms,
	// five minutes unless told otherwise: as much as comes in that time is there
	// in addition.
	logBytes int64 = 2 << 30

	// mostBehind is how many messages of a partition the daemon may be behind.
	mostBehind = 256

	// modelInterval is how often the daemon solves, and lookInterval how often
	// it is asked for its model: the course is as coarse as that.
	modelInterval = 100 * time.Millisecond
	lookInterval  = 25 * time.Millisecond
)

func (s KafkaSource) parameters() []Parameter {
	broker := "real"
	if len(s.Brokers) == 0 {
		broker = "embedded"
	}
	return []Parameter{{"source", "kafka"}, {"broker", broker}, {"partitions", s.Partitions}}
}

// lag is how far the daemon may be behind before the replay waits for it: no
// more than half of what a partition keeps, lest blocks are lost unread.
func (s KafkaSource) lag(p Points) int {
	const label, float, head = 8, 4, 4096
	block := p.BlockRows*(label+float*p.Features) + head
	return int(max(2, min(mostBehind, logBytes/int64(s.Partitions)/2/int64(block))))
}

func (s KafkaSource) learn(ctx context.Context, b *Billion, r *run) (done *learnt, err error) {
	if r.fresh {
		r.Topic = newTopicName()
	}
	t, err := openTopic(ctx, s.Brokers, r.dir, r.Topic, s.Partitions, logBytes/int64(s.Partitions))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && ctx.Err() != nil && r.keeps {
			t.close()
			return
		}
		err = errors.Join(err, t.drop(ctx))
	}()
	d, err := b.Program.start(r.dir, b.Log, map[string]string{
		"kafka.brokers":        strings.Join(t.cluster.Brokers, ","),
		"kafka.topic":          t.name,
		"kafka.group":          t.group("daemon"),
		"format.features":      b.Points.names(),
		"model.nu":             strconv.FormatFloat(Nu, 'g', -1, 64),
		"model.solve_interval": modelInterval.String(),
		"snapshot.file":        filepath.Join(r.dir, "streamd.db"),
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer fail(nil)
	go func() {
		<-d.ended
		fail(fmt.Errorf("the daemon has ended: %w", d.err))
	}()
	writing.Go(func() {
		written, err := b.Program.replay(working, r.dir, b.Points, r.NextRow, t,
			"--wait-group", t.group("daemon"), "--max-lag", strconv.Itoa(s.lag(b.Points)))
		r.NextRow = written.NextRow
		r.Bytes += written.Bytes
		if err != nil {
			fail(err)
		}
	})
	answer, err := s.watch(working, b, r, d)
	if err != nil {
		fail(err)
		writing.Wait() // it says where to go on
		return nil, context.Cause(working)
	}
	writing.Wait()
	by, err := answer.Classifier()
	if err != nil {
		return nil, err
	}
	return &learnt{model: by.Model, digest: answer.Digest}, nil
}

// watch looks at the daemon until it has a model of all points.
func (s KafkaSource) watch(ctx context.Context, b *Billion, r *run, d *process) (*httpapi.ModelAnswer, error) {
	for {
		m, err := d.model(ctx)
		if err != nil {
			return nil, err
		}
		rss, peak := residentBytes(d.cmd.Process.Pid)
		r.PeakRSS = max(r.PeakRSS, peak)
		if m != nil {
			r.Course.look(m.LiveRows, r.now(), rss)
			b.progress(m.LiveRows)
			if m.LiveRows >= b.Rows {
				return m, nil
			}
		}
		if err := pause(ctx, lookInterval); err != nil {
			return nil, err
		}
	}
}

// process is streamd run in a process of its own.
type process struct {
	cmd    *exec.Cmd
	base   string // of URLs
	client *http.Client
	ended  chan struct{} // closed when it has; err says how
	err    error
}

// start starts the daemon and waits until it serves HTTP on a port that it
// chooses. Its configuration is the defaults and the flags.
func (p Program) start(dir string, log zerolog.Logger, flags map[string]string) (*process, error) {
	empty, err := noConfig(dir)
	if err != nil {
		return nil, err
	}
	args := []string{"run", "-c", empty, "--http.listen=127.0.0.1:0", "--log.format=json", "--log.level=info"}
	for key, value := range flags {
		args = append(args, "--"+key+"="+value)
	}
	d := &process{
		cmd:    exec.Command(p.Path, args...),
		client: &http.Client{Timeout: httpapi.MaxWait + answerTime},
		ended:  make(chan struct{}),
	}
	d.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "STREAMD_") })
	detach(d.cmd)
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	serving := make(chan string, 1)
	go func() {
		defer close(d.ended)
		last := follow(stderr, serving, log)
		if d.err = d.cmd.Wait(); d.err != nil && last != "" {
			d.err = fmt.Errorf("%w: %s", d.err, last)
		}
	}()
	select {
	case address := <-serving:
		d.base = "http://" + address
		return d, nil
	case <-d.ended:
		return nil, fmt.Errorf("start the daemon: %w", d.err)
	}
}

const (
	answerTime = time.Minute // beyond the wait that is asked for
	// endTime is how long a daemon may take to save and end; it allows itself
	// half of it.
	endTime = time.Minute
)

// follow reads a daemon's log to its end, gives the address that it serves on,
// passes warnings on, and returns the last line that is not of the log: what
// the program says of its failure.
func follow(stderr io.Reader, serving chan<- string, log zerolog.Logger) (last string) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line struct {
			Level, Message, Address, Error string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			last = lines.Text()
			continue
		}
		if line.Address != "" {
			select {
			case serving <- line.Address:
			default:
			}
		}
		if level, err := zerolog.ParseLevel(line.Level); err == nil && level >= zerolog.WarnLevel {
			log.WithLevel(level).Str("error", line.Error).Msg("the daemon: " + line.Message)
		}
	}
	return last
}

// model is what the daemon serves; nil as long as that is nothing.
func (d *process) model(ctx context.Context) (*httpapi.ModelAnswer, error) {
	m := new(httpapi.ModelAnswer)
	status, err := d.ask(ctx, http.MethodGet, "/v1/model", m)
	if status == http.StatusServiceUnavailable {
		return nil, nil
	}
	return m, err
}

// ask is call for an answer in JSON.
func (d *process) ask(ctx context.Context, method, path string, into any) (status int, err error) {
	status, body, err := d.call(ctx, method, path)
	if err == nil {
		if err = json.Unmarshal(body, into); err != nil {
			err = fmt.Errorf("%s %s%s: %w", method, d.base, path, err)
		}
	}
	return status, err
}

// call gives the body of the daemon's answer. A status that is not one of success
// is an error, and given with it; without an answer it is 0.
func (d *process) call(ctx context.Context, method, path string) (status int, body []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s%s: %w", method, d.base, path, err)
		}
	}()
	request, err := http.NewRequestWithContext(ctx, method, d.base+path, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := d.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // the rest of it is said already
		}
		return 0, nil, err
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil {
		return answer.StatusCode, nil, err
	}
	if answer.StatusCode/100 != 2 {
		return answer.StatusCode, nil, fmt.Errorf("%s: %s", answer.Status, bytes.TrimSpace(body))
	}
	return answer.StatusCode, body, nil
}

// stop asks the daemon to end, and waits until it has.
func (d *process) stop() error {
	d.client.CloseIdleConnections()
	select {
	case <-d.ended:
		return d.err
	default:
	}
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.cmd.Process.Kill() // there are systems that cannot ask
	}
	select {
	case <-d.ended:
		return d.err
	case <-time.After(endTime):
		d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("the daemon did not end within %s and was killed", endTime)
	}
}

// residentBytes is the memory that a process has resident now and had at most
// (VmRSS and VmHWM), where the system tells: Linux does.
func residentBytes(pid int) (now, peak int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak
}
