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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/httpapi"
)

// process is streamd run in a process of its own.
type process struct {
	cmd    *exec.Cmd
	base   string // of URLs
	client *http.Client
	ended  chan struct{} // closed when the process has ended; err is valid then
	err    error
}

const (
	// lookInterval is the time between two readings of a daemon's progress.
	lookInterval = 25 * time.Millisecond

	answerTime = time.Minute // beyond the wait that a request asks for

	// endTime is the time that a daemon has to save and end. The daemon's own limit is half.
	endTime = time.Minute
)

// start starts the daemon and waits until it serves HTTP, on a port that it chooses. Its
// configuration is the defaults and the settings.
func (p Program) start(dir string, log zerolog.Logger, settings map[string]string) (*process, error) {
	empty, err := noConfig(dir)
	if err != nil {
		return nil, err
	}
	args := []string{"run", "-c", empty, "--http.listen=127.0.0.1:0", "--log.format=json", "--log.level=info"}
	for key, value := range settings {
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

// follow reads a daemon's log to its end. It sends the address that the daemon serves, passes
// warnings on, and returns the last line that is not of the log: the program's own error.
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
			told := log.WithLevel(level)
			if line.Error != "" {
				told.Str("error", line.Error)
			}
			told.Msg("the daemon: " + line.Message)
		}
	}
	return last
}

// while returns a context that ends with ctx, with fail, or when the process ends.
func (d *process) while(ctx context.Context) (working context.Context, fail context.CancelCauseFunc) {
	working, fail = context.WithCancelCause(ctx)
	go func() {
		<-d.ended
		fail(fmt.Errorf("the daemon has ended: %w", d.err))
	}()
	return working, fail
}

// ask decodes the JSON of the daemon's answer.
func (d *process) ask(ctx context.Context, method, path string, into any) (status int, err error) {
	status, body, err := d.call(ctx, method, path)
	if err == nil {
		if err = json.Unmarshal(body, into); err != nil {
			err = fmt.Errorf("%s %s%s: %w", method, d.base, path, err)
		}
	}
	return status, err
}

// call returns the body of the daemon's answer. A status of failure is an error, and is
// returned with it. Without an answer the status is 0.
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
			err = e.Err // its method and URL are in the error already
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

// metrics returns the daemon's metrics by name and labels, as GET /metrics writes them. Those with
// a blank in a label are left out.
func (d *process) metrics(ctx context.Context) (map[string]float64, error) {
	_, body, err := d.call(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, err
	}
	metrics := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			metrics[name] = value
		}
	}
	return metrics, nil
}

// stop interrupts the daemon, and waits until it has ended.
func (d *process) stop() error {
	d.client.CloseIdleConnections()
	select {
	case <-d.ended:
		return d.err
	default:
	}
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.cmd.Process.Kill() // some systems have no interrupt
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

// residentBytes returns the memory that a process has resident now and had at most (VmRSS and
// VmHWM) on Linux, and 0 elsewhere.
func residentBytes(pid int) (now, peak int64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, 0
	}
	return int64(status.VmRSS), int64(status.VmHWM)
}

// processTime is the processor time that a process has used, on Linux, and 0 elsewhere.
func processTime(pid int) time.Duration {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	stat, err := p.Stat()
	if err != nil {
		return 0
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}
