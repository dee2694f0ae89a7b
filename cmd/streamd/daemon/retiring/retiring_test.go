package retiring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
)

// Retiring many blocks writes one line to the log, with keys hashed.
func TestLogOfRetirements(t *testing.T) {
	var log bytes.Buffer
	cfg, err := config.Load(config.Sources{Flags: map[string]string{"kafka.topic": "t", "blocks.unit": "key"}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := loop.NewEnvironment(cfg, zerolog.New(&log), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDepartures(loop.New(e), nil, nil, nil, nil, nil, nil)
	r := &httpapi.Retirement{Blocks: 30, Rows: 60, DigestBefore: "a", DigestAfter: "b"}
	for i := range 30 {
		r.First = append(r.First, httpapi.BlockInfo{ID: fmt.Sprintf("key:customer%d", i)})
	}
	d.logRetirement(r, access.Caller{Name: "ops", Remote: "192.0.2.1:7"}, nil)
	var line struct {
		Message, By string
		Blocks      int
		First       []string
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, log.Bytes())
	}
	if line.Message != "blocks retired" || line.Blocks != 30 || len(line.First) != 10 || line.First[0] != d.Logged("key:customer0") || strings.Contains(log.String(), "customer") {
		t.Errorf("%s", log.Bytes())
	}
}
