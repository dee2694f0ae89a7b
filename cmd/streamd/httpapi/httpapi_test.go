package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
	"streamd/retire"
)

func TestEndpoints(t *testing.T) {
	const token = adminToken
	admin := "Authorization: Bearer " + token
	access := guard(t, "read+predict")
	csv := "Content-Type: text/csv"
	json := "Content-Type: application/json"
	libsvm := "Content-Type: application/x-libsvm"
	form := "Content-Type: application/x-www-form-urlencoded"
	for _, test := range []struct {
		method, target, body string
		headers              []string
		status               int
		code                 Code   // of an error
		want                 string // in the body
	}{
		{method: "GET", target: "/v1/model", status: 200, want: `"w":[1,-2],"gamma":0.5,"condition":3`},
		{method: "HEAD", target: "/v1/model", status: 200},
		{method: "GET", target: "/v1/model?wait=", status: 400, code: CodeBadRequest, want: "30s"},
		{method: "GET", target: "/v1/model?wait=30s", status: 200, want: `"fingerprint":"f1"`},
		{method: "GET", target: "/v1/model?wait=30", status: 400, code: CodeBadRequest, want: "30s"},
		{method: "GET", target: "/v1/model?wait=-1s", status: 400, code: CodeBadRequest},
		{method: "POST", target: "/v1/model", status: 405, code: CodeMethodNotAllowed, want: "GET, HEAD"},

		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "2,0.5\n0,1\n", status: 200,
			want: `{"model":"f1","method":"psvm","decision":"value","classes":["ham","spam"],"planes":["spam"],"labels":["spam","ham"],"values":[[0.5],[-2.5]]}`},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, status: 400, code: CodeBadRequest, want: "empty"},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "caps,label,len\n0.5,?,2\n", status: 200, want: `"values":[[0.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "caps,x\n0.5,1\n", status: 400, code: CodeBadRequest, want: `\"len\": the feature is missing`},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "caps,id,len\n0.5,a7,2\n", status: 200, want: `"values":[[0.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[{"caps":0.5,"len":2},{"features":[0,1]}]`, status: 400, code: CodeBadRequest, want: "row 1"},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[{"caps":0.5,"len":2},{"caps":1,"len":0,"label":"x"}]`, status: 200, want: `"labels":["spam","ham"],"values":[[0.5],[-2.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{libsvm}, body: "0 1:2 2:0.5\n0 2:1\n", status: 200, want: `"values":[[0.5],[-2.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[[2,0.5],[0,1]]`, status: 200, want: `"labels":["spam","ham"],"values":[[0.5],[-2.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[[2,0.5],[0,1,3]]`, status: 400, code: CodeBadRequest, want: "row 1: line 1: there are 3 features in the row, want 2"},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[[2,0.5],[]]`, status: 400, code: CodeBadRequest, want: "row 1: line 1: there are 0 features in the row, want 2"},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[[2,0.5],["a",1]]`, status: 400, code: CodeBadRequest, want: "row 1"},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[2,0.5]`, status: 400, code: CodeBadRequest, want: "want a row, an object or an array in an array"},

		// The body's first bytes tell its format where there is no content type, or curl's.
		{method: "POST", target: "/v1/predict", body: "2,0.5\n0,1\n", status: 200, want: `"values":[[0.5],[-2.5]]`},
		{method: "POST", target: "/v1/predict", body: "2,0.5", status: 200, want: `"values":[[0.5]]`},
		{method: "POST", target: "/v1/predict", status: 400, code: CodeBadRequest, want: "empty"},
		{method: "POST", target: "/v1/predict", headers: []string{form}, body: `{"len":2,"caps":0.5}`, status: 200, want: `"values":[[0.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{form + "; charset=utf-8"}, body: " [[2,0.5]]", status: 200, want: `"values":[[0.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{form}, body: "caps,len\n0.5,2\n", status: 200, want: `"values":[[0.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{form}, body: "0 1:2 2:0.5\n", status: 200, want: `"values":[[0.5]]`},
		{method: "POST", target: "/v1/predict", headers: []string{form}, body: "2,0.50,1", status: 415, code: CodeUnsupportedMediaType, want: "--data-binary"},
		{method: "POST", target: "/v1/predict", headers: []string{form}, body: "len=2&caps=0.5", status: 415, code: CodeUnsupportedMediaType, want: "--data-binary"},
		{method: "POST", target: "/v1/predict", headers: []string{form}, status: 400, code: CodeBadRequest, want: "empty"},
		{method: "POST", target: "/v1/predict", headers: []string{"Content-Type: image/png"}, body: "2,1", status: 415, code: CodeUnsupportedMediaType, want: "image/png"},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "2,1\n3", status: 400, code: CodeBadRequest, want: "row 1"},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "1,1\n1e308,-1e308", status: 400, code: CodeBadRequest, want: "row 1"},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "1,1\nNaN,1", status: 400, code: CodeBadRequest, want: "row 1"},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: strings.Repeat("1,1\n", MaxRows), status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: strings.Repeat("1,1\n", MaxRows+1), status: 413, code: CodeTooLarge},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: strings.Repeat(" ", MaxBodyBytes+1), status: 413, code: CodeTooLarge},
		{method: "POST", target: "/v1/predict?form=rows", headers: []string{csv}, body: "2,0.5\n0,1\n", status: 200,
			want: `{"model":"f1","method":"psvm","decision":"value","rows":[{"label":"spam","values":{"spam":0.5}},{"label":"ham","values":{"spam":-2.5}}]}`},
		{method: "POST", target: "/v1/predict?form=columns", headers: []string{csv, "Accept: */*"}, body: "2,0.5\n", status: 200, want: `"values":[[0.5]]}`},
		{method: "POST", target: "/v1/predict?form=table", headers: []string{csv}, body: "2,0.5\n", status: 400, code: CodeBadRequest, want: "columns or rows"},
		{method: "POST", target: "/v1/predict", headers: []string{json, "Accept: text/csv"}, body: `[[2,0.5],[0,1]]`, status: 200, want: "label,value_spam\nspam,0.5\nham,-2.5\n"},
		{method: "POST", target: "/v1/predict", headers: []string{csv, "Accept: application/json;q=0.5", "Accept: text/*;q=0.7"}, body: "2,0.5\n", status: 200, want: "label,value_spam\nspam,0.5\n"},
		{method: "POST", target: "/v1/predict", headers: []string{csv, "Accept: text/csv;q=0, */*;q=0.1"}, body: "2,0.5\n", status: 200, want: `"values":[[0.5]]}`},
		{method: "POST", target: "/v1/predict", headers: []string{csv, "Accept: application/json, text/plain, */*"}, body: "2,0.5\n", status: 200, want: `"values":[[0.5]]}`},
		{method: "POST", target: "/v1/predict", headers: []string{csv, "Accept: application/vnd.apache.arrow.stream"}, body: "2,0.5\n", status: 200, want: "value_spam"},
		{method: "POST", target: "/v1/predict", headers: []string{csv, "Accept: text/html, application/xml"}, body: "2,0.5\n", status: 406, code: CodeNotAcceptable, want: "text/csv, application/vnd.apache.arrow.stream"},
		{method: "POST", target: "/v1/predict", headers: []string{csv, "Accept: text/csv;q=much"}, body: "2,0.5\n", status: 406, code: CodeNotAcceptable},
		{method: "POST", target: "/v1/predict?form=columns", headers: []string{csv, "Accept: text/csv"}, body: "2,0.5\n", status: 200, want: "value_spam"},
		{method: "POST", target: "/v1/predict?form=rows", headers: []string{csv, "Accept: text/csv"}, body: "2,0.5\n", status: 400, code: CodeBadRequest, want: "leave it out with Accept text/csv"},
		{method: "POST", target: "/v1/predict?contributions=true", headers: []string{csv, "Accept: text/csv"}, body: "2,0.5\n", status: 400, code: CodeBadRequest, want: "JSON alone"},
		{method: "GET", target: "/v1/predict", status: 405, code: CodeMethodNotAllowed},

		{method: "GET", target: "/v1/blocks", status: 200, want: `"id":"orders/3/1841"`},
		{method: "GET", target: "/v1/blocks?limit=1", status: 200, want: `"next":"key:a+b//8="`},
		{method: "GET", target: "/v1/model?positions=orders/0/5-1", status: 400, code: CodeBadRequest, want: `positions=\"orders/0/5-1\": \"orders/0/5-1\": the first offset is above the last one"`},
		{method: "GET", target: "/v1/model?positions=orders", status: 400, code: CodeBadRequest, want: "want TOPIC/PARTITION/FIRST-LAST, such as orders/3/100-199"},
		{method: "GET", target: "/v1/model?positions=" + strings.Repeat("t/0/1-5,", 100) + "t/0/1-5", status: 400, code: CodeBadRequest, want: "there are more than 100 ranges"},
		{method: "GET", target: "/v1/compare?a=2026-01-03T00:00:00Z,2026-01-01T00:00:00Z", status: 400, code: CodeBadRequest, want: `01-01T00:00:00Z\": from 2026-01-03T00:00:00Z is not before to 2026-01-01T00:00:00Z`},
		{method: "GET", target: "/v1/compare?a=2026-01-03T00:00:00Z", status: 400, code: CodeBadRequest, want: "is not a window: FROM,TO"},
		{method: "GET", target: "/v1/compare?a=,&b=orders/0/5-1", status: 400, code: CodeBadRequest, want: "is not a window: FROM,TO"},
		{method: "GET", target: "/v1/compare?a=orders/0/5-1", status: 400, code: CodeBadRequest, want: "the first offset is above the last one"},
		{method: "GET", target: "/v1/blocks?limit=0", status: 400, code: CodeBadRequest, want: "limit"},
		{method: "GET", target: "/v1/blocks?limit=many", status: 400, code: CodeBadRequest},
		{method: "GET", target: "/v1/blocks?after=zzz", status: 200, want: `{"blocks":[]}`},
		{method: "GET", target: "/v1/blocks?after=bad", status: 400, code: CodeBadRequest, want: "bad"},

		{method: "DELETE", target: "/v1/blocks/orders/3/1841", headers: []string{admin}, status: 200, want: `"id":"orders/3/1841"`},
		{method: "DELETE", target: "/v1/blocks/orders%2F3%2F1841", headers: []string{admin}, status: 200, want: `"state_digest_before":"d1","state_digest_after":"d2"`},
		{method: "DELETE", target: "/v1/blocks/key:a+b//8=", headers: []string{admin}, status: 200, want: `"offsets":[]`},
		{method: "DELETE", target: "/v1/blocks/key%3Aa%2Bb%2f%2f8%3d", headers: []string{admin}, status: 200},
		{method: "DELETE", target: "/v1/blocks/orders/3/1842", headers: []string{admin}, status: 404, code: CodeNotFound, want: "orders/3/1842"},
		{method: "DELETE", target: "/v1/blocks/..", headers: []string{admin}, status: 404, code: CodeNotFound},
		{method: "DELETE", target: "/v1/blocks/", headers: []string{admin}, status: 404, code: CodeNotFound},
		{method: "DELETE", target: "/v1/blocks", headers: []string{admin}, status: 405, code: CodeMethodNotAllowed},
		{method: "GET", target: "/v1/blocks/orders/3/1841", status: 405, code: CodeMethodNotAllowed, want: "DELETE"},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", status: 401, code: CodeUnauthorized},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", headers: []string{admin + "x"}, status: 401, code: CodeUnauthorized},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", headers: []string{"Authorization: Basic " + token}, status: 401, code: CodeUnauthorized},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", headers: []string{"Authorization: bearer " + token}, status: 200},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", headers: []string{admin, "Sec-Fetch-Site: cross-site"}, status: 403, code: CodeForbidden},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", headers: []string{admin, "Origin: https://evil.example"}, status: 403, code: CodeForbidden},

		{method: "POST", target: "/v1/retire", headers: []string{admin}, body: `{"ids":["orders/3/1841"]}`, status: 200,
			want: `"dry_run":false,"blocks":1,"rows":0,`},
		{method: "POST", target: "/v1/retire", headers: []string{admin, form}, body: ` {"ids":["orders/3/1841","x"]} `, status: 200, want: `"not_live":1,"not_live_ids":["x"],"offsets":[],"state_digest_before":"d1","state_digest_after":"d2"`},
		{method: "POST", target: "/v1/retire?dry_run=true", headers: []string{admin}, body: `{"ids":["orders/3/1841"]}`, status: 200, want: `"not_live":0,"not_live_ids":[],"offsets":[],"state_digest_before":"d1","in_basis":false}`},
		{method: "POST", target: "/v1/retire?dry_run=yes", headers: []string{admin}, body: `{"ids":["orders/3/1841"]}`, status: 400, code: CodeBadRequest, want: "true or false"},
		{method: "POST", target: "/v1/retire", headers: []string{admin}, body: `{"ids":["x"]}`, status: 404, code: CodeNotFound, want: "not a live block"},
		{method: "POST", target: "/v1/retire", headers: []string{admin}, body: `{"keys":["x"]}`, status: 404, code: CodeNotFound, want: "chooses no live block"},
		{method: "POST", target: "/v1/retire", headers: []string{admin, "Content-Encoding: br"}, body: `{"ids":["x"]}`, status: 415, code: CodeUnsupportedMediaType, want: "br"},
		{method: "POST", target: "/v1/retire", headers: []string{admin, csv}, body: "orders/3/1841", status: 415, code: CodeUnsupportedMediaType, want: "application/json"},
		{method: "POST", target: "/v1/retire", headers: []string{admin}, body: strings.Repeat(" ", MaxBodyBytes+1), status: 413, code: CodeTooLarge},
		{method: "POST", target: "/v1/retire", body: `{"ids":["orders/3/1841"]}`, status: 401, code: CodeUnauthorized},
		{method: "POST", target: "/v1/retire", headers: []string{"Authorization: Bearer " + retireToken}, body: `{"ids":["orders/3/1841"]}`, status: 200, want: `"blocks":1`},
		{method: "POST", target: "/v1/retire", headers: []string{"Authorization: Bearer " + readToken}, body: `{"ids":["orders/3/1841"]}`, status: 403, code: CodeForbidden, want: "retire"},
		{method: "GET", target: "/v1/retire", status: 405, code: CodeMethodNotAllowed, want: "POST"},

		{method: "POST", target: "/v1/snapshot", headers: []string{admin}, status: 200, want: `"state_digest":"d1"`},
		{method: "POST", target: "/v1/snapshot", status: 401, code: CodeUnauthorized},
		{method: "GET", target: "/v1/snapshot", headers: []string{admin}, status: 200, want: "a copy, receipts: true"},
		{method: "GET", target: "/v1/snapshot?receipts=false", headers: []string{admin}, status: 200, want: "a copy, receipts: false"},
		{method: "GET", target: "/v1/snapshot", status: 401, code: CodeUnauthorized},
		{method: "PUT", target: "/v1/snapshot", status: 405, code: CodeMethodNotAllowed},

		{method: "POST", target: "/v1/refine", headers: []string{admin}, status: 200,
			want: `{"done":true,"refinement":{"method":"full","state_digest":"d1","made_at":"2026-03-04T05:06:07.0000008Z","seconds":0.25,` +
				`"source":"sample","rows":40,"live_rows":42,"complete":true,` +
				`"planes":[{"class":"spam","objective":1.5,"gradient_norm":1e-9,"gap":null,"programs":0,"iterations":4,"features":2,"support_vectors":9,"leave_one_out_error":null}]}}`},
		{method: "POST", target: "/v1/refine", status: 401, code: CodeUnauthorized},
		{method: "POST", target: "/v1/refine?wait=soon", headers: []string{admin}, status: 400, code: CodeBadRequest, want: "soon"},
		{method: "GET", target: "/v1/refine", status: 405, code: CodeMethodNotAllowed, want: "POST"},
		{method: "GET", target: "/v1/epoch", status: 200, want: `{"epoch":0,"in_use":null,"stale":false,"reducing":null,"rebuild":null,"problem":"rows are few"}`},
		{method: "POST", target: "/v1/reduce", headers: []string{admin}, status: 202, want: `{"epoch":0,"in_use":null,"stale":false,"reducing":null,"rebuild":null,"problem":"rows are few"}`},
		{method: "POST", target: "/v1/reduce", status: 401, code: CodeUnauthorized},
		{method: "POST", target: "/v1/features/learn", headers: []string{admin}, status: 200,
			want: `{"lists":[{"feature":"town","most":1,"values":[{"value":"graz","rows":3}],"distinct":2,"rows":4,"share":0.75}],"blocks":2,"rows":5,"changes":true,"schema":{"town":{"kind":"category","values":["graz"],"other":true}}}`},
		{method: "POST", target: "/v1/features/learn", status: 401, code: CodeUnauthorized},
		{method: "DELETE", target: "/v1/reduce", headers: []string{admin}, status: 200, want: `{"epoch":0,"in_use":null,"stale":false,"reducing":null,"rebuild":null,"problem":"rows are few"}`},
		{method: "DELETE", target: "/v1/reduce", status: 401, code: CodeUnauthorized},
		{method: "GET", target: "/v1/label-requests?count=2", status: 200,
			want: `{"state_digest":"d1","rows":42,"clusters":2,"labelled":1,"features":["len","caps"],"requests":[{"block":"orders/3/1841","row":1,"values":[1.5,1],"share":0.5}]}`},
		{method: "GET", target: "/v1/label-requests?count=1", status: 200, want: `"requests":[]`},
		{method: "GET", target: "/v1/label-requests?count=5000", status: 200, want: `"clusters":1000,`},
		{method: "GET", target: "/v1/label-requests?count=0", status: 400, code: CodeBadRequest, want: "count"},
		{method: "POST", target: "/v1/label-requests", headers: []string{admin}, status: 405, code: CodeMethodNotAllowed, want: "GET"},
		{method: "GET", target: "/v1/tuning", status: 404, code: CodeNotFound, want: "nu is set"},
		{method: "GET", target: "/v1/quality", status: 404, code: CodeNotFound, want: "no row is held out"},
		{method: "POST", target: "/v1/predict?leverage=true", headers: []string{csv}, body: "2,0.5\n", status: 503, code: CodeUnavailable, want: "no factor is kept"},
		{method: "POST", target: "/v1/predict?leverage=yes", headers: []string{csv}, body: "2,0.5\n", status: 400, code: CodeBadRequest, want: "yes"},
		{method: "POST", target: "/v1/predict?contributions=3", headers: []string{csv}, body: "2,0.5\n", status: 400, code: CodeBadRequest, want: "true"},
		{method: "POST", target: "/v1/predict?contributions=true&top=0", headers: []string{csv}, body: "2,0.5\n", status: 400, code: CodeBadRequest, want: "top"},
		{method: "POST", target: "/v1/predict?top=1", headers: []string{csv}, body: "2,0.5\n", status: 400, code: CodeBadRequest, want: "contributions=true"},
		{method: "POST", target: "/v1/predict?contributions=true", headers: []string{csv}, body: "2,0.5\n0,1\n", status: 200,
			want: `"values":[[0.5],[-2.5]],"contributions":{"at_mean":[0],"rows":[[{"len":1,"caps":-0.5}],[{"len":-1,"caps":-1.5}]]}}`},
		{method: "POST", target: "/v1/predict?contributions=true&top=1", headers: []string{csv}, body: "2,0.5\n0,1\n", status: 200,
			want: `"rows":[[{"len":1}],[{"caps":-1.5}]]}}`},
		{method: "POST", target: "/v1/predict?contributions=false&leverage=false", headers: []string{csv}, body: "2,0.5\n", status: 200, want: `"values":[[0.5]]}`},

		{method: "GET", target: "/healthz", status: 200, want: "ok"},
		{method: "GET", target: "/readyz", status: 200, want: "ready"},
		{method: "GET", target: "/metrics", status: 200, want: "streamd_live_rows 42"},
		{method: "GET", target: "/", status: 200, want: "<!doctype html>"},
		{method: "POST", target: "/", status: 405, code: CodeMethodNotAllowed},
		{method: "GET", target: "/assets/page.css", status: 200, want: "--ground"},
		{method: "GET", target: "/assets/page.html", status: 404, code: CodeNotFound},
		{method: "GET", target: "/v1/model/", status: 404, code: CodeNotFound},
		{method: "GET", target: "/v1//model", status: 404, code: CodeNotFound},
		{method: "GET", target: "/v3/model", status: 404, code: CodeNotFound},
	} {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			w := do(New(Config{Access: access}, newFake(), NewMetrics(), zerolog.Nop()), test.method, test.target, test.body, test.headers...)
			if w.Code != test.status {
				t.Fatalf("status %d, want %d: %.300s", w.Code, test.status, w.Body)
			}
			if body := w.Body.String(); !strings.Contains(body, test.want) {
				t.Errorf("body %.300q lacks %q", body, test.want)
			}
			if test.status >= 400 {
				if e := decodeJSON[ErrorAnswer](t, w).Error; e.Code != test.code || e.Message == "" {
					t.Errorf("error %+v, want code %q and a message", e, test.code)
				}
			}
			if test.status == 405 && w.Header().Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Content-Security-Policy") == "" {
				t.Errorf("headers %v lack the guards", w.Header())
			}
		})
	}
}

// A selector is read to the end, or refused with what is wrong.
func TestSelectors(t *testing.T) {
	s := newServer(newFake())
	for body, want := range map[string]string{
		"":                          "want an object such as {",
		"orders/3/1841":             "want an object",
		`["orders/3/1841"]`:         "want an object",
		"null":                      "want an object",
		"{}":                        "chooses nothing",
		`{"ids":["a"]`:              "want a whole object",
		`{1:2}`:                     "want a whole object",
		`{["a"]}`:                   "want a whole object",
		`{"ids":["a"],}`:            "want a whole object",
		`{"ids":["a"]} {}`:          "more behind it",
		`{"ids":["a"]}x`:            "more behind it",
		`{"ids":["a"],"ids":["b"]}`: `"ids" is unknown or given twice`,
		`{"id":["a"]}`:              `"id" is unknown`,
		`{"IDS":["a"]}`:             `"IDS" is unknown`,
		`{"ids":"a"}`:               "ids: want a list of texts",
		`{"ids":[7]}`:               "want a list of texts",
		`{"ids":null,"to":"2026-01-02T03:04:05Z"}`:                           "ids is null",
		`{"keys":[],"to":"2026-01-02T03:04:05Z"}`:                            "keys is empty",
		`{"from":null,"ids":["a"]}`:                                          "from is null",
		`{"ids":["a",""]}`:                                                   "one of its ids, keys, headers or positions is empty",
		`{"headers":[""]}`:                                                   "one of its ids, keys, headers or positions is empty",
		`{"keys":[null]}`:                                                    "one of its ids, keys, headers or positions is empty",
		`{"positions":[null]}`:                                               "one of its ids, keys, headers or positions is empty",
		`{"positions":["orders/3/18-"]}`:                                     `positions: "orders/3/18-": want TOPIC/PARTITION/FIRST-LAST, such as orders/3/100-199`,
		`{"positions":"orders/3/1-2"}`:                                       "positions: want a list of texts such as orders/3/100-199",
		`{"positions":["orders/3/9-8"]}`:                                     "the first offset is above the last one",
		`{"from":"yesterday"}`:                                               "from: want a time such as 2026-01-02T03:04:05Z",
		`{"from":1767322800}`:                                                "from: want a time such as 2026-01-02T03:04:05Z",
		`{"from":"2026-01-02T03:04:05Z","to":"2026-01-02T03:04:05Z"}`:        "from 2026-01-02T03:04:05Z is not before to 2026-01-02T03:04:05Z: no event time lies between them",
		`{"from":"2026-01-02T03:04:05Z","to":"2026-01-02T04:04:05.5+01:00"}`: "",
		`{"to":"0001-01-01T00:00:00Z"}`:                                      "to is 0001-01-01T00:00:00Z: no event time is before it",
		`{"ids":["a"],"to":"0001-01-01T02:00:00+02:00"}`:                     "no event time is before it",
	} {
		w := do(s, "POST", "/v1/retire", body)
		if want == "" {
			if w.Code != 404 {
				t.Errorf("%s: status %d: %s", body, w.Code, w.Body)
			}
			continue
		}
		e := decodeJSON[ErrorAnswer](t, w).Error
		if w.Code != 400 || e.Code != CodeBadRequest || !strings.Contains(e.Message, want) || strings.Contains(e.Message, "json:") {
			t.Errorf("%s: status %d, %+v, want %q", body, w.Code, e, want)
		}
	}

	f := newFake()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, `{"ids":["orders/3/1841"],"keys":["ann/1"],"positions":["orders/3/5-7"],"from":"2026-01-02T03:04:05.5Z","to":"2026-01-03T03:04:05+02:00"}`)
	z.Close()
	if w := do(newServer(f), "POST", "/v1/retire", zipped.String(), "Content-Encoding: gzip"); w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	from, to := time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC), time.Date(2026, 1, 3, 1, 4, 5, 0, time.UTC)
	got := f.selector
	if !got.From.Equal(from) || !got.To.Equal(to) {
		t.Errorf("from %v to %v", got.From, got.To)
	}
	got.From, got.To = nil, nil
	if want := (retire.Selector{IDs: []string{"orders/3/1841"}, Keys: []string{"ann/1"}, Positions: []retire.Range{{Topic: "orders", Partition: 3, First: 5, Last: 7}}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAdminIsOpenWithoutToken(t *testing.T) {
	if w := do(newServer(newFake()), "DELETE", "/v1/blocks/orders/3/7", ""); w.Code != 200 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	// httptest's requests are for example.com: this is a page of the same origin.
	page := "Origin: http://example.com"
	if w := do(newServer(newFake()), "DELETE", "/v1/blocks/orders/3/7", "", page); w.Code != 403 {
		t.Errorf("a page: status %d", w.Code)
	}
	if w := do(newServer(newFake()), "POST", "/v1/predict", "1,1", page, "Content-Type: text/csv"); w.Code != 200 {
		t.Errorf("a page that predicts: status %d", w.Code)
	}
	if w := do(New(Config{Access: guard(t, "")}, newFake(), NewMetrics(), zerolog.Nop()), "DELETE", "/v1/blocks/orders/3/7", "", page, "Authorization: Bearer "+retireToken); w.Code != 200 {
		t.Errorf("a page with the token: status %d", w.Code)
	}
}

func TestServiceErrors(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		code   Code
		shown  bool
	}{
		{fmt.Errorf("retire x: %w", ErrNotLive), 404, CodeNotFound, true},
		{fmt.Errorf("retire x: %w", ErrBadID), 400, CodeBadRequest, true},
		{fmt.Errorf("stopping: %w", ErrUnavailable), 503, CodeUnavailable, true},
		{fmt.Errorf("refining since 12:03: %w", ErrBusy), 409, CodeConflict, true},
		{errors.New("open /var/lib/streamd/state: disk full"), 500, CodeInternal, false},
	} {
		f := newFake()
		f.err = test.err
		var log bytes.Buffer
		s := New(Config{Access: newServer(newFake()).config.Access}, f, NewMetrics(), zerolog.New(&log))
		for _, call := range []string{"GET /v1/blocks", "DELETE /v1/blocks/x", "POST /v1/snapshot", "POST /v1/refine", "GET /v1/label-requests", "GET /v1/epoch", "POST /v1/reduce", "POST /v1/features/learn", "DELETE /v1/reduce"} {
			log.Reset()
			method, target, _ := strings.Cut(call, " ")
			w := do(s, method, target, "")
			e := decodeJSON[ErrorAnswer](t, w).Error
			if w.Code != test.status || e.Code != test.code {
				t.Errorf("%s, %v: status %d, code %q", call, test.err, w.Code, e.Code)
			}
			if shown := e.Message == test.err.Error(); shown != test.shown {
				t.Errorf("%s, %v: message %q", call, test.err, e.Message)
			}
			if logged := strings.Contains(log.String(), "disk full"); logged == test.shown {
				t.Errorf("%s, %v: log %q", call, test.err, log.String())
			}
		}
	}
}

func TestPanicIsAnswered(t *testing.T) {
	f := newFake()
	var log bytes.Buffer
	s := New(Config{Access: newServer(newFake()).config.Access}, f, NewMetrics(), zerolog.New(&log))
	f.panics = true
	w := do(s, "GET", "/readyz", "")
	if e := decodeJSON[ErrorAnswer](t, w).Error; w.Code != 500 || e.Code != CodeInternal {
		t.Errorf("status %d, error %+v", w.Code, e)
	}
	if !strings.Contains(log.String(), "panicked") {
		t.Errorf("log %q", log.String())
	}
	f.panics = false
	if w := do(s, "GET", "/readyz", ""); w.Code != 200 {
		t.Errorf("status %d after the panic", w.Code)
	}
}

func TestWithoutModel(t *testing.T) {
	f := newFake()
	f.served.Model, f.served.Problem = nil, "the live rows are all of one class"
	f.status.NotReady = "still reading"
	s := newServer(f)
	for call, code := range map[string]Code{
		"GET /v1/model": CodeNoModel, "POST /v1/predict": CodeNoModel, "POST /v1/refine": CodeNoModel,
		"GET /v1/tuning": CodeNoModel, "GET /v1/quality": CodeNoModel, "GET /readyz": CodeUnavailable,
	} {
		method, target, _ := strings.Cut(call, " ")
		w := do(s, method, target, "", "Content-Type: text/csv", `If-None-Match: "f1"`)
		if e := decodeJSON[ErrorAnswer](t, w).Error; w.Code != 503 || e.Code != code {
			t.Errorf("%s: status %d, error %+v", call, w.Code, e)
		}
		if w.Header().Get("Retry-After") == "" || w.Header().Get("ETag") != "" {
			t.Errorf("%s: headers %v", call, w.Header())
		}
	}
	if w := do(s, "GET", "/v1/model", ""); !strings.Contains(w.Body.String(), f.served.Problem) {
		t.Errorf("body %s lacks the reason", w.Body)
	}
	if w := do(s, "GET", "/", ""); w.Code != 200 || !strings.Contains(w.Body.String(), f.served.Problem) {
		t.Errorf("page: status %d, body %s", w.Code, w.Body)
	}
}

func TestPagesOfBlocks(t *testing.T) {
	f := newFake()
	f.ids = nil
	for i := range 2500 {
		f.ids = append(f.ids, fmt.Sprintf("t/0/%04d", i))
	}
	s := newServer(f)
	for _, limit := range []string{"", "7", "1000", "5000"} {
		var got []string
		after, pages := "", 0
		for {
			q := url.Values{"after": {after}}
			if limit != "" {
				q.Set("limit", limit)
			}
			a := decodeJSON[BlocksAnswer](t, do(s, "GET", "/v1/blocks?"+q.Encode(), ""))
			if len(a.Blocks) > maxPage {
				t.Fatalf("limit %q: a page of %d", limit, len(a.Blocks))
			}
			for _, b := range a.Blocks {
				got = append(got, b.ID)
			}
			pages++
			if after = a.Next; after == "" {
				break
			}
		}
		if !reflect.DeepEqual(got, f.ids) {
			t.Errorf("limit %q: %d blocks in %d pages, want %d", limit, len(got), pages, len(f.ids))
		}
	}
}

// finite draws any finite float64, of any bits.
var finite = rapid.Custom(func(t *rapid.T) float64 {
	x := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return math.Copysign(0, x)
	}
	return x
})

func TestModelRoundTripsBitForBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		plane := incremental.Plane{
			Class: "b", W: rapid.SliceOfN(finite, n, n).Draw(t, "w"),
			Gamma: finite.Draw(t, "gamma"), Condition: finite.Draw(t, "condition"),
		}
		f := newFake()
		m := *f.served.Model
		m.Features, m.Planes = make([]string, n), []incremental.Plane{plane}
		m.Options.Nu = math.Abs(finite.Draw(t, "nu"))
		f.served.Model = &m
		var got ModelAnswer
		if err := json.Unmarshal(do(newServer(f), "GET", "/v1/model", "").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		same := func(what string, got, want float64) {
			if math.Float64bits(got) != math.Float64bits(want) {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
		for j := range n {
			same("w", got.Planes[0].W[j], plane.W[j])
		}
		same("gamma", got.Planes[0].Gamma, plane.Gamma)
		same("condition", *got.Planes[0].Condition, plane.Condition)
		same("nu", got.Options.Nu, m.Options.Nu)
	})
}

func TestModelWithoutBoundOnCondition(t *testing.T) {
	f := newFake()
	f.served.Model.Planes[0].Condition = math.Inf(1)
	a := decodeJSON[ModelAnswer](t, do(newServer(f), "GET", "/v1/model", ""))
	if a.Planes[0].Condition != nil {
		t.Errorf("condition %v, want null", *a.Planes[0].Condition)
	}
}

// A prediction is the model's decision, row by row and bit for bit.
func TestPredictAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		k := rapid.IntRange(2, 4).Draw(t, "k")
		rows := rapid.IntRange(1, 3000).Draw(t, "rows") // several pieces
		number := rapid.Float64Range(-1e6, 1e6)
		m := &incremental.Model{Features: incremental.DefaultFeatures(n), Options: incremental.Options{Nu: 1}}
		for c := range k {
			m.Classes = append(m.Classes, fmt.Sprintf("<%d>\"\u2028", c))
			if k > 2 || c == 1 {
				m.Planes = append(m.Planes, incremental.Plane{
					Class: m.Classes[c], W: rapid.SliceOfN(number, n, n).Draw(t, "w"), Gamma: number.Draw(t, "gamma")})
			}
		}
		columns := make([][]float64, n)
		for j := range columns {
			few := rapid.SliceOfN(number, 1, 9).Draw(t, "column")
			for i := range rows {
				columns[j] = append(columns[j], few[i%len(few)])
			}
		}
		var body strings.Builder
		for i := range rows {
			for j := range columns {
				fmt.Fprintf(&body, "%v%c", columns[j][i], ",\n"[min(1, (j+1)/n)])
			}
		}
		f := newFake()
		f.served.Model = m
		w := do(newServer(f), "POST", "/v1/predict", body.String(), "Content-Type: text/csv; header=absent")
		var got predictions.PredictAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Labels) != rows || len(got.Values) != rows || len(got.Planes) != len(m.Planes) {
			t.Fatalf("%d labels, %d values, %d planes", len(got.Labels), len(got.Values), len(got.Planes))
		}
		x := make([]float64, n)
		for i := range rows {
			for j := range x {
				x[j] = columns[j][i]
			}
			class, values := decide(m, x)
			if got.Labels[i] != m.Classes[class] || !reflect.DeepEqual(got.Values[i], values) {
				t.Fatalf("row %d: %q %v, want %q %v", i, got.Labels[i], got.Values[i], m.Classes[class], values)
			}
		}
	})
}

// decide classifies a row on its own.
func decide(m *incremental.Model, x []float64) (class int, values []float64) {
	for _, p := range m.Planes {
		value := -p.Gamma
		for j, w := range p.W {
			value += float64(w * x[j])
		}
		values = append(values, value)
	}
	if len(values) == 1 && values[0] >= 0 {
		return 1, values
	}
	for i, value := range values {
		if value > values[class] {
			class = i
		}
	}
	return class, values
}

func TestPredictDoesNotAllocatePerRow(t *testing.T) {
	f := newFake()
	f.answers(t)
	const few, many = 10, 10_000
	top := 1
	allocations := func(rows int) float64 {
		column := gram.ColumnOf(make([]float32, rows))
		return testing.AllocsPerRun(5, func() {
			p, err := predict(f.served, []gram.Column{column, column}, rows, asked{contributions: top, leverage: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.write(discard{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a, b := allocations(few), allocations(many); b > a+many/100 { // the runtime has some, and more with the race detector
		t.Errorf("%v allocations for %d rows, %v for %d", a, few, b, many)
	}
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) WriteHeader(int)             {}
func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestMetrics(t *testing.T) {
	s := newServer(newFake())
	s.metrics.SolveSeconds.Observe(0.002)
	s.metrics.ReduceSeconds.Observe(0.75)
	do(s, "GET", "/v1/model?wait=1s", "")
	do(s, "GET", "/whatever/a/client/writes", "")
	do(s, "GET", "//", "")
	got := do(s, "GET", "/metrics", "").Body.String()
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(want)), "\n")
	if len(lines) < 30 {
		t.Fatalf("testdata/metrics.txt has only %d lines", len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("metrics lack %q", line)
		}
	}
	if strings.Contains(got, "-1") && strings.Contains(got, `next_offset{partition="4"`) {
		t.Error("metrics show an offset that is not known")
	}
	plain := newFake()
	plain.status.Epoch, plain.served.Model, plain.prequential = nil, nil, model.Prequential{}
	none := do(newServer(plain), "GET", "/metrics", "").Body.String()
	if strings.Contains(none, "streamd_epoch") || strings.Contains(none, "streamd_rebuild") {
		t.Error("metrics show epochs where there is no kernel")
	}
	if strings.Contains(none, "streamd_prequential_balanced") {
		t.Error("metrics show how right the model is about rows where none has been judged")
	}
	if !strings.Contains(none, "\nstreamd_model_timestamp_seconds 0\n") {
		t.Error("metrics do not show that there is no model")
	}
	if strings.Contains(got, "whatever") {
		t.Error("a client's path became a label")
	}
}

// For any body the answer has a value for every row, or an error.
func FuzzPredict(f *testing.F) {
	types := []string{"application/json", "text/csv", "application/x-libsvm", "application/vnd.apache.arrow.stream", "text/csv; header=present", formType}
	block := &incremental.Block{
		Features: []string{"len", "caps"}, Classes: []string{"a"}, Codes: []int32{0, 0},
		Columns: []gram.Column{gram.ColumnOf([]float32{2, 0}), gram.ColumnOf([]int8{1, -1})},
	}
	for i, format := range []wire.Format{wire.JSON, wire.CSV, wire.LIBSVM, wire.Arrow} {
		body, err := wire.Encode(nil, format, block)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, body)
		f.Add(i, body[:len(body)/2])
	}
	f.Add(0, []byte(`{"len":1e308,"caps":-1e308}`))
	f.Add(4, []byte("caps,len\n1,2\n"))
	f.Add(5, []byte("[[1,2],[3,4]]"))
	f.Add(5, []byte("2,0.5\n"))
	service := newFake()
	service.answers(f)
	s := newServer(service)
	f.Fuzz(func(t *testing.T, contentType int, body []byte) {
		w := do(s, "POST", "/v1/predict?contributions=true&top=1&leverage=true", string(body), "Content-Type: "+types[uint(contentType)%uint(len(types))])
		switch w.Code {
		case 200:
			a := decodeJSON[predictions.PredictAnswer](t, w)
			if m := len(a.Labels); len(a.Values) != m || len(a.Probabilities) != m || len(a.Contributions.Rows) != m || len(a.Leverage.Rows) != m {
				t.Fatalf("%d labels; %+v", m, a)
			}
		case 400, 413, 415:
			decodeJSON[ErrorAnswer](t, w)
		default:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	})
}

// A number that JSON lacks is an error if nothing has been sent, and else ends the
// connection: the client never takes a part for the answer.
func TestAnswerOutOfRange(t *testing.T) {
	f := newFake()
	f.answers(t)
	f.served.Model.Mean = []float64{1.5, 1.5} // the value of the mean row overflows
	f.served.Model.Planes[0].W = []float64{1e308, 1e308}
	s := newServer(f)
	const target, csv = "/v1/predict?contributions=true", "Content-Type: text/csv"
	for _, encoding := range []string{"identity", "gzip"} {
		w := do(s, "POST", target, "1,0\n", csv, "Accept-Encoding: "+encoding)
		if e := decodeJSON[ErrorAnswer](t, w).Error; w.Code != 400 || !strings.Contains(e.Message, "out of range") || w.Header().Get(modelHeader) != "" {
			t.Errorf("%s: status %d, %+v", encoding, w.Code, e)
		}
	}
	defer func() {
		if problem := recover(); problem != http.ErrAbortHandler {
			t.Errorf("a long answer ended with %v", problem)
		}
	}()
	w := do(s, "POST", target, strings.Repeat("1,0\n", 10_000), csv)
	t.Errorf("status %d, and an answer of %d bytes", w.Code, w.Body.Len())
}

// A block's id reaches the service unchanged in every way of writing it.
func FuzzBlockID(f *testing.F) {
	for _, id := range []string{"orders/3/1841", "key:a+b//8=", "key:AA==", "%2F", "a?b#c", "../../etc", "é\x00\xff", " ", ".", "a/../b", "/"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		service := newFake()
		service.ids = []string{id}
		s := newServer(service)
		encoded := "/v1/blocks/" + url.PathEscape(id)
		if _, err := url.ParseRequestURI(encoded); err != nil {
			t.Fatalf("%q: %v", encoded, err)
		}
		w := do(s, "DELETE", encoded, "")
		if id == "" || id == "/" || id == "." || id == ".." { // no segment to the mux, and no id of a block
			if w.Code != 404 {
				t.Fatalf("id %q: status %d", id, w.Code)
			}
			return
		}
		if w.Code != 200 || len(service.ids) != 0 {
			t.Fatalf("id %q as %s: status %d: %s", id, encoded, w.Code, w.Body)
		}
	})
}

// Every request gets an answer or an error with a known code, and never a redirect.
func FuzzPath(f *testing.F) {
	f.Add("GET", "/v1/model?wait=1h")
	f.Add("DELETE", "/v1/blocks/a//../b%2f")
	f.Add("CONNECT", "//x/..")
	f.Add("OPTIONS", "/v1/predict")
	f.Add("GET", "/v1/blocks?limit=99999999999999999999&after=%zz")
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := http.NewRequest(method, target, nil)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		r.Body = http.NoBody
		service := newFake()
		w := httptest.NewRecorder()
		newServer(service).ServeHTTP(w, r)
		if w.Code == 200 {
			return
		}
		var e ErrorAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || codes[e.Error.Code].status != w.Code {
			t.Fatalf("%s %q: status %d, body %q", method, target, w.Code, w.Body)
		}
		if w.Code == 500 {
			t.Fatalf("%s %q: %s", method, target, w.Body)
		}
	})
}

func FuzzTags(f *testing.F) {
	f.Add(`"f1"`)
	f.Add(`W/"a,b" , "f1"`)
	f.Add(`*`)
	f.Add(`"unfinished`)
	f.Fuzz(func(t *testing.T, header string) {
		if parseTags([]string{header}).has("f1") && !strings.Contains(header, `"f1"`) && !strings.Contains(header, "*") {
			t.Fatalf("%q names f1", header)
		}
		// A tag at the end is found behind any well-formed text.
		if tags := parseTags([]string{`"x"`, `W/"y,z"`, `"f1"`}); !tags.has("f1") || !tags.has("y,z") || tags.has("y") {
			t.Fatal(tags)
		}
	})
}
