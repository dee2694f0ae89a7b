package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
)

// The exit status is 1 where something needs somebody, after the answer has been printed. A hint
// needs nobody.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		state httpapi.ReplyState
		level httpapi.Level
		fails bool
	}{{httpapi.ReplyGood, "", false}, {httpapi.ReplyGood, httpapi.LevelHint, false}, {httpapi.ReplyWarn, httpapi.LevelWarning, true}, {httpapi.ReplyBad, httpapi.LevelFailure, true}} {
		a := httpapi.StatusAnswer{Answers: []httpapi.StatusReply{
			{ID: "right", Question: "Is it right?", State: httpapi.ReplyGood, Text: "91 %", Notes: []string{"of new rows", "always the largest class: 52 %"}},
			{ID: "needs", Question: "What needs you?", State: c.state, Text: "1 problem"},
		}}
		if c.level != "" {
			a.Problems = []httpapi.StatusProblem{{Level: c.level, Problem: httpapi.Problem{Kind: httpapi.ProblemGap, Text: "7 records were gone", Action: "look"}}}
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/status" {
				w.WriteHeader(http.StatusNotFound)
			}
			json.NewEncoder(w).Encode(a)
		}))
		for _, flags := range [][]string{nil, {"--json"}} {
			var out, stderr bytes.Buffer
			err := run(t.Context(), append([]string{"status", "--url", server.URL}, flags...), nil, strings.NewReader(""), &out, &stderr)
			if (err != nil) != c.fails || exitStatus(err) != map[bool]int{false: 0, true: 1}[c.fails] {
				t.Errorf("%+v %v: %v", c, flags, err)
			}
			if flags != nil {
				if got := new(httpapi.StatusAnswer); json.Unmarshal(out.Bytes(), got) != nil || fmt.Sprint(*got) != fmt.Sprint(a) {
					t.Errorf("%+v: %s", c, &out)
				}
			} else if text := out.String(); !strings.Contains(text, "always the largest class: 52 %") || strings.Contains(text, "7 records were gone; look") != (c.level != "") {
				t.Errorf("%+v: %s", c, text)
			}
		}
		server.Close()
	}
}
