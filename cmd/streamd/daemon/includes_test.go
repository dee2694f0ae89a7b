package daemon

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
)

// A caller who has produced a record asks for a model of a state that has read it, from any
// replica, also where the record makes no difference to the model.
func TestIncludes(t *testing.T) {
	name := topic(t, 2)
	following := controlTopic(t, name) // it has a record
	flags := map[string]string{"retire.topic": following}
	replicas := []*instance{
		start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags),
		start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags),
	}
	produce(t, name, message{value: jsonRow(1, 2, 3)}, message{value: jsonRow(-1, 4, 5)})
	produce(t, name, message{partition: 1, value: jsonRow(1, 3, 3)}, message{partition: 1, value: []byte("no rows")})
	for _, c := range []struct {
		includes string
		retires  string // a selector that is written to the control topic before
	}{
		{includes: name + "/0/1"},
		{includes: name + "/0/0-1," + name + "/1/0"},
		{includes: name + "/1/1"}, // it was refused
		{includes: following + "/0/1", retires: `{"retire":{"positions":["` + name + `/0/500-600"]}}`}, // nothing
		{includes: following + "/0/2", retires: `{"retire":{"positions":["` + name + `/1/0"]}}`},
	} {
		if c.retires != "" {
			produce(t, following, message{key: []byte(c.includes), value: []byte(c.retires)})
		}
		var tags []string
		for _, d := range replicas {
			status, tag, a := d.etag("/v1/model?wait=1m&includes="+c.includes, "")
			if status != http.StatusOK {
				t.Fatalf("%s: status %d", c.includes, status)
			}
			for part := range strings.SplitSeq(c.includes, ",") {
				if !named(&a, part) {
					t.Errorf("%s: the state has %+v", c.includes, a.Offsets)
				}
			}
			tags = append(tags, tag)
		}
		if c.retires != "" && tags[0] != tags[1] { // before, one of them may have read on
			t.Errorf("%s: ETags %q", c.includes, tags)
		}
	}
	d := replicas[0]
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"?includes=" + name + "/0/2":           {http.StatusGatewayTimeout, "has read " + name + "/0 up to offset 2, and not yet offset 2"},
		"?wait=10ms&includes=" + name + "/7/0": {http.StatusGatewayTimeout, "not_yet"},
		"?includes=other/0/2":                  {http.StatusBadRequest, `does not read topic \"other\"`},
		"?includes=" + name:                    {http.StatusBadRequest, "includes"},
	} {
		for _, path := range []string{"/v1/model", "/v1/predict"} {
			method := map[string]string{"/v1/model": http.MethodGet, "/v1/predict": http.MethodPost}[path]
			if status, body := d.ask(method, path+query); status != want.status || !strings.Contains(body, want.says) {
				t.Errorf("%s%s: %d: %s", path, query, status, body)
			}
		}
	}
	// A poll waits for the record.
	answered := make(chan error, 1)
	go func() {
		status, _, a := d.etag("/v1/model?wait=1m&includes="+name+"/0/2", "")
		if status != http.StatusOK || !named(&a, name+"/0/2") {
			answered <- fmt.Errorf("status %d with %+v", status, a.Offsets)
		}
		close(answered)
	}()
	time.Sleep(20 * time.Millisecond)
	produce(t, name, message{value: jsonRow(1, 9, 9)})
	if err := <-answered; err != nil {
		t.Error(err)
	}
	for _, d := range replicas {
		d.stop()
	}
}

// named reports whether the offsets of an answer have a position TOPIC/PARTITION/OFFSET, or the
// last one of a range.
func named(a *httpapi.ModelAnswer, position string) bool {
	for _, o := range a.Offsets {
		var last int64
		rest, is := strings.CutPrefix(position, fmt.Sprintf("%s/%d/", o.Topic, o.Partition))
		if _, after, ranged := strings.Cut(rest, "-"); ranged {
			rest = after
		}
		if fmt.Sscan(rest, &last); is && o.Next > last {
			return true
		}
	}
	return false
}
