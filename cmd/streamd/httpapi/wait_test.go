package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streamd/cmd/streamd/model"
)

func TestIfNoneMatch(t *testing.T) {
	for _, test := range []struct {
		headers []string
		status  int
	}{
		{nil, 200},
		{[]string{`If-None-Match: "f1"`}, 304},
		{[]string{`If-None-Match: W/"f1"`}, 304},
		{[]string{`If-None-Match: *`}, 304},
		{[]string{`If-None-Match: "a,b", W/"c" ,"f1"`}, 304},
		{[]string{`If-None-Match: "a"`, `If-None-Match: "f1"`}, 304},
		{[]string{`If-None-Match: "f2"`}, 200},
		{[]string{`If-None-Match: f1`}, 200},
		{[]string{`If-None-Match: "x`, `If-None-Match: "f1"`}, 200}, // malformed from the first line on
		{[]string{`If-None-Match: ""`}, 200},
	} {
		w := do(newServer(newFake()), "GET", "/v1/model", "", test.headers...)
		if w.Code != test.status {
			t.Errorf("%q: status %d, want %d", test.headers, w.Code, test.status)
		}
		if tag := w.Header().Get("ETag"); tag != `W/"f1"` {
			t.Errorf("%q: ETag %s", test.headers, tag)
		}
		if w.Code == 304 && w.Body.Len() > 0 {
			t.Errorf("%q: 304 with a body", test.headers)
		}
	}
}

// pipes is a net.Listener in memory, which works with a fake clock.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			select {
			case p.conns <- far:
				return near, nil
			case <-p.closed:
				return nil, errors.New("the server has stopped")
			}
		},
	}}
}

// The polls run on a fake clock against a whole server, whose deadlines are shorter than
// the wait.
func TestLongPoll(t *testing.T) {
	const wait = 45 * time.Second
	for _, test := range []struct {
		name   string
		before func(*model.Served)
		tag    string
		during func(t *testing.T, f *fake, stop func())
		status int
		after  time.Duration
		want   string // ETag
	}{
		{name: "a model it does not know", tag: `"f0"`, status: 200, want: `W/"f1"`},
		{name: "no tag", status: 200, want: `W/"f1"`},
		{name: "no change", tag: `"f1"`, status: 304, after: wait, want: `W/"f1"`},
		{name: "any", tag: `*`, status: 304, after: wait, want: `W/"f1"`},
		{
			name: "a change", tag: `"f1"`, status: 200, after: 40 * time.Second, want: `W/"f2"`,
			during: func(t *testing.T, f *fake, stop func()) {
				time.Sleep(20 * time.Second)
				f.serve(func(s *model.Served) {}) // the same model again does not end the wait
				time.Sleep(20 * time.Second)
				f.serve(func(s *model.Served) { s.Fingerprint = "f2" })
			},
		},
		{
			name: "to another model it knows", tag: `"f1", "f2"`, status: 304, after: wait, want: `W/"f2"`,
			during: func(t *testing.T, f *fake, stop func()) {
				time.Sleep(time.Second)
				f.serve(func(s *model.Served) { s.Fingerprint = "f2" })
			},
		},
		{
			name: "the first model", before: func(s *model.Served) { s.Model = nil }, status: 200, after: time.Second, want: `W/"f2"`,
			during: func(t *testing.T, f *fake, stop func()) {
				time.Sleep(time.Second)
				again := newFake().served.Model
				f.serve(func(s *model.Served) { s.Model, s.Fingerprint = again, "f2" })
			},
		},
		{name: "never a model", before: func(s *model.Served) { s.Model = nil }, status: 503, after: wait},
		{
			name: "the model goes away", tag: `"f1"`, status: 503, after: time.Second,
			during: func(t *testing.T, f *fake, stop func()) {
				time.Sleep(time.Second)
				f.serve(func(s *model.Served) { s.Model, s.Fingerprint = nil, "f2" })
			},
		},
		{
			name: "the end", tag: `"f1"`, status: 304, after: 2 * time.Second, want: `W/"f1"`,
			during: func(t *testing.T, f *fake, stop func()) {
				time.Sleep(2 * time.Second)
				stop()
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				if test.before != nil {
					test.before(f.served)
				}
				listener := newPipes()
				ctx, stop := context.WithCancel(context.Background())
				served := make(chan error, 1)
				go func() { served <- newServer(f).Serve(ctx, listener) }()

				start := time.Now()
				if test.during != nil {
					go test.during(t, f, stop)
				}
				r, err := http.NewRequest("GET", "http://streamd/v1/model?wait="+wait.String(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if test.tag != "" {
					r.Header.Set("If-None-Match", test.tag)
				}
				client := listener.client()
				w, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, w.Body); err != nil {
					t.Fatal(err)
				}
				w.Body.Close()
				if took := time.Since(start); w.StatusCode != test.status || took != test.after {
					t.Errorf("status %d after %v, want %d after %v", w.StatusCode, took, test.status, test.after)
				}
				if tag := w.Header.Get("ETag"); tag != test.want {
					t.Errorf("ETag %s, want %s", tag, test.want)
				}
				stop()
				if err := <-served; err != nil {
					t.Errorf("Serve: %v", err)
				}
				client.CloseIdleConnections()
			})
		})
	}
}

func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := do(newServer(newFake()), "GET", "/v1/model?wait=24h", "", `If-None-Match: "f1"`)
		if took := time.Since(start); w.Code != 304 || took != MaxWait {
			t.Errorf("status %d after %v", w.Code, took)
		}
	})
}

// A snapshot may take longer than other answers.
func TestSlowSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow = WriteTimeout + ReadTimeout
		listener := newPipes()
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- newServer(f).Serve(ctx, listener) }()
		client := listener.client()
		w, err := client.Post("http://streamd/v1/snapshot", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if w.StatusCode != 200 {
			t.Errorf("status %d", w.StatusCode)
		}
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		client.CloseIdleConnections()
	})
}

// A client that sends its body too slowly is cut off.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- newServer(newFake()).Serve(ctx, listener) }()
		near, far := net.Pipe()
		listener.conns <- far
		start := time.Now()
		go io.WriteString(near, "POST /v1/predict HTTP/1.1\r\nHost: streamd\r\nContent-Type: text/csv\r\nContent-Length: 9\r\n\r\n1")
		io.Copy(io.Discard, near) // until the server closes
		if took := time.Since(start); took < ReadTimeout || took > ReadTimeout+5*time.Second {
			t.Errorf("cut off after %v", took)
		}
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// While all slots are taken, a prediction waits for a while and is then refused.
func TestPredictionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFake())
		for range cap(s.slots) {
			s.slots <- struct{}{}
		}
		predict := func() int { return do(s, "POST", "/v1/predict", "1,1", "Content-Type: text/csv").Code }
		if code := predict(); code != 503 {
			t.Errorf("status %d", code)
		}
		go func() { time.Sleep(time.Second); <-s.slots }()
		if code := predict(); code != 200 {
			t.Errorf("status %d", code)
		}
		if code := predict(); code != 200 {
			t.Errorf("status %d: the slot was not given back", code)
		}
	})
}

// Slow bodies take no slots, and only the memory of the bytes received.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFake())
		begin := func(body string) (end func(rest string) int) {
			from, to := io.Pipe()
			r := httptest.NewRequest("POST", "/v1/predict", from)
			r.Header.Set("Content-Type", "text/csv")
			w := httptest.NewRecorder()
			done := make(chan struct{})
			go func() { defer close(done); s.ServeHTTP(w, r) }()
			io.WriteString(to, body)
			synctest.Wait()
			return func(rest string) int {
				io.WriteString(to, rest)
				to.Close()
				<-done
				return w.Code
			}
		}
		var slow []func(string) int
		for range 2 * cap(s.slots) {
			slow = append(slow, begin("1,"))
		}
		start := time.Now()
		if w := do(s, "POST", "/v1/predict", "1,1", "Content-Type: text/csv"); w.Code != 200 || time.Since(start) > 0 {
			t.Errorf("status %d after %v beside slow bodies", w.Code, time.Since(start))
		}
		for _, end := range slow {
			if code := end("1"); code != 200 {
				t.Errorf("status %d of a slow body", code)
			}
		}
		long := begin(strings.Repeat("1,1\n", shortBody/4+pieceBytes/2)) // two pieces and a part of the third
		if !s.memory.TryAcquire(Memory - 6*pieceBytes) {
			t.Error("a long body takes more than it needs")
		} else if s.memory.TryAcquire(1) {
			t.Error("a long body takes nothing")
		}
		start = time.Now()
		if w := do(s, "POST", "/v1/predict", strings.Repeat("1,1\n", shortBody), "Content-Type: text/csv"); w.Code != 503 || time.Since(start) != slotWait {
			t.Errorf("status %d of a long body after %v without memory", w.Code, time.Since(start))
		}
		s.memory.Release(Memory - 6*pieceBytes)
		if code := long("1,1,1\n"); code != 400 {
			t.Errorf("status %d of a long body that ends badly", code)
		}
		if !s.memory.TryAcquire(Memory) || len(s.slots) != 0 {
			t.Errorf("memory or %d slots are not given back", len(s.slots))
		}
	})
}

func TestServeTellsWhyItStopped(t *testing.T) {
	listener := newPipes()
	listener.Close()
	if err := newServer(newFake()).Serve(context.Background(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// Many polls are answered in turn, at most PollRate in a second. A few are answered at once.
func TestPollsTakeTurns(t *testing.T) {
	var turns turns
	now := time.Now()
	for i := range 3 * PollRate {
		wait, want := turns.take(now), max(0, time.Duration(i-pollBurst)*time.Second/PollRate)
		if wait = max(0, wait); wait != want {
			t.Fatalf("poll %d waits for %v, want %v", i, wait, want)
		}
	}
	if wait := turns.take(now.Add(time.Minute)); wait > 0 {
		t.Errorf("after a minute a poll waits for %v", wait)
	}
}

// Of many polls that wait for their turn, each has the model of that moment, and one rendering is
// made of each.
func TestManyPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const polls = 4 * pollBurst
		f := newFake()
		s := newServer(f)
		s.polls = make(chan struct{}, polls)
		tags := make(chan string, polls)
		for range polls {
			go func() {
				w := do(s, "GET", "/v1/model?wait=30s", "", `If-None-Match: "f1"`)
				tags <- w.Header().Get("ETag")
			}()
		}
		synctest.Wait()
		f.serve(func(s *model.Served) { s.Fingerprint = "f2" })
		synctest.Wait() // those of the burst have their answers, the others their turns
		f.serve(func(s *model.Served) { s.Fingerprint = "f3" })
		began := time.Now()
		seen := map[string]int{}
		for range polls {
			seen[<-tags]++
		}
		if took, want := time.Since(began), (polls-pollBurst-1)*time.Second/PollRate; took != want {
			t.Errorf("all have their answers after %v, want %v", took, want)
		}
		if seen[`W/"f2"`] != pollBurst+1 || seen[`W/"f3"`] != polls-pollBurst-1 {
			t.Errorf("the models of the answers: %v", seen)
		}
	})
}
