package httpapi

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
)

// long is a body whose answer is longer than all buffers between server and client.
var long = strings.Repeat("123.456,0.123456789\n", MaxRows)

const longTarget = "/v1/predict?contributions=true"

// post writes a request for a long answer.
func post(t *testing.T, conn io.Writer) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nContent-Length: %d\r\n\r\n%s", longTarget, len(long), long); err != nil {
		t.Fatal(err)
	}
}

// Clients that do not read their answers delay nobody else.
func TestSlowReaders(t *testing.T) {
	s := newServer(newFake())
	address := listen(t, s)
	readers := cap(s.slots)
	for range readers {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		post(t, conn)
		if line, err := bufio.NewReaderSize(conn, 16).ReadString(' '); err != nil || line != "HTTP/1.1 " {
			t.Fatalf("%q, %v", line, err)
		} // and reads no more
	}
	if len(s.slots) > 0 {
		t.Errorf("%d predictions hold slots that others wait for", len(s.slots))
	}
	answer, err := http.Post("http://"+address+"/v1/predict", "text/csv", strings.NewReader(strings.Repeat("1,1\n", shortBody)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); answer.StatusCode != 200 || err != nil {
		t.Errorf("beside %d slow readers: status %d, %.200s, %v", readers, answer.StatusCode, text, err)
	}
	if s.memory.TryAcquire(Memory) {
		t.Error("the slow readers have got their answers all the same")
	}
}

// An answer that nobody reads is given up soon, and its memory is free again.
func TestStalledAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFake())
		listener := newPipes()
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, listener) }()
		near, far := net.Pipe()
		listener.conns <- far
		post(t, near)
		read := bufio.NewReader(near)
		if line, err := read.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Fatalf("%q, %v", line, err)
		}
		time.Sleep(stallTimeout - time.Second)
		if s.memory.TryAcquire(Memory) {
			t.Error("the answer is given up at once")
		}
		time.Sleep(2 * time.Second)
		if !s.memory.TryAcquire(Memory) {
			t.Error("the answer still waits")
		}
		near.Close()
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// While others hold all memory, small predictions are answered and large ones wait for a
// while. Each returns its memory on every path.
func TestMemoryOfPredictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFake())
		if !s.memory.TryAcquire(Memory) {
			t.Fatal("there is less than that")
		}
		began := time.Now()
		predict := func(target, body string, headers ...string) int {
			return do(s, "POST", target, body, append(headers, "Content-Type: text/csv")...).Code
		}
		if code := predict("/v1/predict", "1,1\n"); code != 200 || time.Since(began) > 0 {
			t.Errorf("a small prediction: status %d after %v", code, time.Since(began))
		}
		if code := predict(longTarget, long); code != 503 || time.Since(began) != slotWait {
			t.Errorf("a large prediction: status %d after %v", code, time.Since(began))
		}
		time.AfterFunc(time.Second, func() { s.memory.Release(Memory) })
		if code := predict(longTarget, long); code != 200 || time.Since(began) != slotWait+time.Second {
			t.Errorf("a large prediction: status %d after %v", code, time.Since(began))
		}
		for _, headers := range [][]string{nil, {"Content-Encoding: gzip"}, {"Accept-Encoding: gzip"}} {
			for _, body := range []string{long, long + "x", "x", zipText(long), strings.Repeat(" ", MaxBodyBytes+1), zipText(strings.Repeat(" ", MaxBodyBytes+1))} {
				predict(longTarget, body, headers...)
				if !s.memory.TryAcquire(Memory) {
					t.Fatalf("a prediction with %q has not given back what it took", headers)
				}
				s.memory.Release(Memory)
			}
		}
	})
}

// zipText compresses a text.
func zipText(text string) string { return string(zip([]byte(text))) }

// Idle connections are bounded and keep no new caller out.
func TestIdleConnections(t *testing.T) {
	const most, opened = 4, 20
	address := listen(t, New(Config{Access: newServer(newFake()).config.Access, MaxConnections: most}, newFake(), NewMetrics(), zerolog.Nop()))
	var conns []net.Conn
	for i := range opened {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		if i%2 == 0 {
			continue // it sends no request
		}
		io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		w, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || w.StatusCode != 200 {
			t.Fatalf("connection %d: %v, %v", i, w, err)
		}
		if _, err := io.Copy(io.Discard, w.Body); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan int, opened)
	for _, conn := range conns {
		go func() {
			n, _ := conn.Read(make([]byte, 1))
			closed <- n
		}()
	}
	for range opened - most {
		if n := <-closed; n > 0 {
			t.Error("a connection has something to say")
		}
	}
}

// Connections with an open request are not closed: the next connection waits for the first
// of them to end.
func TestBusyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		f := newFake()
		s := New(Config{Access: newServer(f).config.Access, MaxConnections: most}, f, NewMetrics(), zerolog.Nop())
		listener := newPipes()
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, listener) }()
		f.slow = WriteTimeout
		began := time.Now()
		done := make(chan time.Duration, most+1)
		for range most + 1 {
			go func() {
				client := listener.client()
				defer client.CloseIdleConnections()
				w, err := client.Post("http://streamd/v1/snapshot", "", nil)
				if err != nil || w.StatusCode != 200 {
					t.Errorf("%v, %v", w, err)
				}
				if err == nil {
					w.Body.Close()
				}
				done <- time.Since(began)
			}()
			synctest.Wait()
		}
		for i := range most + 1 {
			if took, want := <-done, WriteTimeout*time.Duration(1+i/most); took != want {
				t.Errorf("answer %d after %v, want %v", i, took, want)
			}
		}
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// Waiting polls leave connections to others.
func TestPollsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Access: newServer(newFake()).config.Access, MaxConnections: 6}, newFake(), NewMetrics(), zerolog.Nop())
		poll := func() int { return do(s, "GET", "/v1/model?wait=30s", "", `If-None-Match: "f1"`).Code }
		codes := make(chan int, 3)
		for range cap(codes) {
			go func() { codes <- poll() }()
		}
		synctest.Wait()
		began := time.Now()
		if code := poll(); code != 503 || time.Since(began) > 0 {
			t.Errorf("one poll too many: status %d after %v", code, time.Since(began))
		}
		for range cap(codes) {
			if code := <-codes; code != 304 {
				t.Errorf("status %d", code)
			}
		}
		if code := poll(); code != 304 {
			t.Errorf("status %d after the end of the others", code)
		}
	})
}

// A picture is drawn once a slot is free, once for all callers that wait, and once for each
// model.
func TestRegionsAreDrawnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		onBasis(t, f)
		s := newServer(f)
		for range cap(s.slots) {
			s.slots <- struct{}{}
		}
		codes := make(chan int, 2)
		began := time.Now()
		for range cap(codes) {
			go func() { codes <- do(s, "GET", "/v1/regions", "").Code }()
			time.Sleep(slotWait / 2)
		}
		for range cap(codes) {
			if code := <-codes; code != 503 || time.Since(began) != slotWait {
				t.Errorf("status %d after %v without a place", code, time.Since(began))
			}
		}
		<-s.slots
		first := do(s, "GET", "/v1/regions", "")
		s.slots <- struct{}{}
		again := do(s, "GET", "/v1/regions", "")
		if first.Code != 200 || again.Code != 200 || !bytes.Equal(first.Body.Bytes(), again.Body.Bytes()) {
			t.Errorf("status %d, then %d from the cache", first.Code, again.Code)
		}
		f.serve(func(s *model.Served) { s.Fingerprint = "f2" })
		if w := do(s, "GET", "/v1/regions", ""); w.Code != 503 {
			t.Errorf("another model: status %d", w.Code)
		}
	})
}

// Large answers are compressed for clients that can read gzip, and only for them.
func TestCompressedAnswers(t *testing.T) {
	f := newFake()
	f.served.Model = wideModel(3, 500)
	s := newServer(f)
	const accepts = "Accept-Encoding: br, gzip;q=0.5"
	for _, test := range []struct {
		method, target, body string
		zipped               bool
	}{
		{"GET", "/v1/model", "", true},
		{"GET", "/", "", true},
		{"GET", "/v1/openapi.json", "", true},
		{"GET", "/metrics", "", true},
		{"POST", "/v1/predict", strings.Repeat(strings.Repeat("1,", 499)+"1\n", 100), true},
		{"POST", "/v1/predict?form=rows", strings.Repeat(strings.Repeat("1,", 499)+"1\n", 100), true},
		{"GET", "/healthz", "", false},
		{"GET", "/v1/nothing", "", false},
	} {
		plain := do(s, test.method, test.target, test.body, "Content-Type: text/csv")
		w := do(s, test.method, test.target, test.body, "Content-Type: text/csv", accepts)
		if w.Code != plain.Code || plain.Header().Get("Content-Encoding") != "" || (w.Header().Get("Content-Encoding") == "gzip") != test.zipped {
			t.Errorf("%s: status %d, %v; plain: %d, %v", test.target, w.Code, w.Header(), plain.Code, plain.Header())
			continue
		}
		if !test.zipped {
			continue
		}
		from, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(from)
		if err != nil || strings.HasPrefix(test.target, "/v1/") && !bytes.Equal(text, plain.Body.Bytes()) {
			t.Errorf("%s: %d bytes and %v, want %d", test.target, len(text), err, plain.Body.Len())
		}
		tag := plain.Header().Get("ETag")
		want := tag
		if strong := strings.HasPrefix(tag, `"`); strong {
			want = strings.TrimSuffix(tag, `"`) + zippedTag + `"`
		}
		if w.Header().Get("ETag") != want {
			t.Errorf("%s: ETag %s of the plain answer, %s of the other", test.target, tag, w.Header().Get("ETag"))
		}
	}
	if tag := do(s, "GET", "/v1/openapi.json", "").Header().Get("ETag"); do(s, "GET", "/v1/openapi.json", "", "If-None-Match: "+strings.TrimSuffix(tag, `"`)+`-gzip"`).Code != 304 {
		t.Error("a client that has the compressed document gets it again")
	}
	for _, tag := range []string{`"f1"`, `W/"f1"`} {
		if w := do(s, "GET", "/v1/model", "", accepts, "If-None-Match: "+tag); w.Code != 304 || w.Body.Len() > 0 || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("with %s: status %d, %v", tag, w.Code, w.Header())
		}
	}
	f.panics = true
	if w := do(s, "GET", "/", "", accepts); w.Code != 500 {
		t.Errorf("a panic: status %d", w.Code)
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "GZip": true, "br, gzip": true, "deflate,gzip;q=0.1": true, "gzip ; q=1": true, "gzip;Q=0.5": true,
		"gzip;q=0": false, "gzip;q=0.000": false, "gzip;q=": false, "gzip;q=x": false, "br": false, "xgzip": false, "*": false, "identity": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", header)
		if acceptsGzip(r) != want {
			t.Errorf("%q: %v", header, !want)
		}
	}
}

// Bodies may be compressed. The limits hold for their content.
func TestCompressedBodies(t *testing.T) {
	s := newServer(newFake())
	good := zipText("2,0.5\n0,1\n")
	for _, test := range []struct {
		body, coding string
		status       int
		want         string
	}{
		{good, "gzip", 200, `"labels":["spam","ham"]`},
		{good, "GZIP", 200, `"labels":["spam","ham"]`},
		{"2,0.5\n0,1\n", "identity", 200, `"labels":["spam","ham"]`},
		{good, "gzip, gzip", 415, "want gzip or none"},
		{good, "br", 415, "want gzip or none"},
		{good[:len(good)-1], "gzip", 400, "decompressed"},
		{good[:len(good)-6] + "xxxxxx", "gzip", 400, "decompressed"},
		{"2,0.5\n", "gzip", 400, "decompressed"},
		{"", "gzip", 400, "decompressed"},
		{zipText(strings.Repeat(" ", MaxBodyBytes)), "gzip", 400, "1 feature, want 2"},
		{zipText(strings.Repeat(" ", MaxBodyBytes+1)), "gzip", 413, "larger than 16777216 bytes when it is decompressed"},
		{zipText(strings.Repeat("1,1\n", MaxRows+1)), "gzip", 413, "takes at most"},
	} {
		w := do(s, "POST", "/v1/predict", test.body, "Content-Type: text/csv", "Content-Encoding: "+test.coding)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%d bytes of %s: status %d, %.200s", len(test.body), test.coding, w.Code, w.Body)
		}
	}
	if len(s.slots) != 0 {
		t.Error("a slot is not given back")
	}
}

// The rest of an answer is not made for a client that went away.
func TestGoneClient(t *testing.T) {
	s := newServer(newFake())
	w := &hungUp{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("POST", longTarget, strings.NewReader(long))
	r.Header.Set("Content-Type", "text/csv")
	s.ServeHTTP(w, r)
	if w.writes > 2 {
		t.Errorf("%d pieces are written to nobody", w.writes)
	}
}

// hungUp is a client that went away.
type hungUp struct {
	*httptest.ResponseRecorder
	writes int
}

func (h *hungUp) Write([]byte) (int, error) {
	h.writes++
	return 0, io.ErrClosedPipe
}
