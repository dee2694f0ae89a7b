package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/kernels/svm"
	"streamd/retire"
)

// daemonFlags name the daemon and identify the caller.
type daemonFlags struct {
	URL       string `name:"url" placeholder:"URL" help:"Address of the daemon. The default is STREAMD_URL, else http://127.0.0.1:8080."`
	TokenFile string `placeholder:"FILE" help:"File with a token, for a daemon that asks for one."`
	CAFile    string `name:"ca-file" placeholder:"FILE" help:"PEM file of the trusted authorities for https. The default is the system's."`
	CertFile  string `placeholder:"FILE" help:"PEM file of a client certificate. Goes with --key-file."`
	KeyFile   string `placeholder:"FILE" help:"PEM file of the client certificate's private key."`
	as        string // prefix of the flags' names in errors; "": none
}

// flag is the name of a flag.
func (f *daemonFlags) flag(name string) string {
	switch {
	case f.as == "":
		return "--" + name
	case name == "url":
		return "--" + f.as
	}
	return "--" + f.as + "-" + name
}

const (
	defaultURL    = "http://127.0.0.1:8080"
	answerTimeout = time.Minute // on top of a requested wait
	adminTimeout  = 10 * time.Minute
	maxAnswer     = 1 << 30 // bytes; the model of 1000 classes by 4096 features is 100 MB
)

// client calls a daemon.
type client struct {
	base  string
	token string
	http  *http.Client
	flags *daemonFlags
}

func (f *daemonFlags) client(s *surroundings) (*client, error) {
	c := &client{base: f.URL, flags: f}
	if c.base == "" {
		c.base = s.variable(config.URLVariable)
	}
	if c.base == "" {
		c.base = defaultURL
	}
	c.base = strings.TrimRight(c.base, "/")
	if u, err := url.Parse(c.base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("%s %q: want an address such as %s", f.flag("url"), c.base, defaultURL)
	}
	if f.TokenFile != "" {
		text, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.flag("token-file"), err)
		}
		c.token = strings.TrimSpace(string(text))
		if c.token == "" || strings.ContainsAny(c.token, " \t\r\n") {
			return nil, fmt.Errorf("%s %s: want one token and nothing else, without a name and roles", f.flag("token-file"), f.TokenFile)
		}
	}
	encryption, err := f.tls()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = encryption
	c.http = &http.Client{Transport: transport}
	return c, nil
}

// tls reads the files of the flags.
func (f *daemonFlags) tls() (*tls.Config, error) {
	c := &tls.Config{}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.flag("ca-file"), err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s %s: no certificate in PEM form in it", f.flag("ca-file"), f.CAFile)
		}
	}
	if (f.CertFile == "") != (f.KeyFile == "") {
		return nil, usagef("%s and %s go together", f.flag("cert-file"), f.flag("key-file"))
	}
	if f.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", f.flag("cert-file"), f.flag("key-file"), err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// call sends a request and returns the body of the answer. It also decodes the body into
// a value that is not nil.
func (c *client) call(ctx context.Context, method, path string, timeout time.Duration, into any) (body []byte, err error) {
	return c.send(ctx, method, path, payload{}, timeout, into)
}

// payload is the body of a request.
type payload struct {
	contentType string
	body        []byte
	known       string // the ETag of an answer that the caller has; "": none
}

// send is call with a body.
func (c *client) send(ctx context.Context, method, path string, send payload, timeout time.Duration, into any) (body []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s%s: %w", method, c.base, path, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := c.open(ctx, method, path, send)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if body, err = readAnswer(answer.Body); err != nil {
		return nil, err
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			return nil, fmt.Errorf("the answer is not that of streamd: %w", err)
		}
	}
	return bytes.TrimSpace(body), nil
}

// open sends a request and returns the answer, whose body the caller closes. A refusal is an error.
func (c *client) open(ctx context.Context, method, path string, send payload) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(send.body))
	if err != nil {
		return nil, err
	}
	if send.contentType != "" {
		request.Header.Set("Content-Type", send.contentType)
	}
	if send.known != "" {
		request.Header.Set("If-None-Match", send.known)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // the caller's text has the rest
		}
		where := "--url and STREAMD_URL say where"
		if c.flags.as != "" {
			where = c.flags.flag("url") + " says where"
		}
		return nil, fmt.Errorf("%w; is the daemon running there? (%s)", err, where)
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNotModified:
		return answer, nil
	}
	defer answer.Body.Close()
	body, err := readAnswer(answer.Body)
	if err != nil {
		return nil, err
	}
	return nil, c.refusal(answer.Status, body)
}

func readAnswer(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return body, nil
}

// refusal is the error in an answer of the daemon.
func (c *client) refusal(status string, body []byte) error {
	var e httpapi.ErrorAnswer
	if json.Unmarshal(body, &e) != nil || e.Error.Code == "" {
		return fmt.Errorf("%s, and not from streamd", status)
	}
	if e.Error.Code == httpapi.CodeUnauthorized {
		return fmt.Errorf("%s (%s names the file that holds one)", e.Error.Message, c.flags.flag("token-file"))
	}
	return &e.Error
}

// question is the call of a daemon whose answer a command shows.
type question struct {
	daemonFlags
	jsonFlag
	method, path string
	timeout      time.Duration
}

// show asks the daemon and prints the answer: unchanged with --json, else by print.
func show[Answer any](ctx context.Context, s *surroundings, q question, print func(t *table, a *Answer)) error {
	return showSent(ctx, s, q, payload{}, print)
}

// showSent is show with a body.
func showSent[Answer any](ctx context.Context, s *surroundings, q question, send payload, print func(t *table, a *Answer)) error {
	daemon, err := q.client(s)
	if err != nil {
		return err
	}
	a := new(Answer)
	body, err := daemon.send(ctx, q.method, q.path, send, q.timeout, a)
	if err != nil {
		return err
	}
	if q.JSON {
		return printAnswer(s.stdout, body)
	}
	t := newTable(s.stdout)
	print(t, a)
	return t.flush()
}

// printAnswer prints the body of an answer, which ends with a line.
func printAnswer(w io.Writer, body []byte) error {
	_, err := w.Write(append(body, '\n'))
	return err
}

// modelCmd shows the served model, or that of a window.
type modelCmd struct {
	Wait     time.Duration  `default:"0s" help:"Time to wait for a model when there is none yet, or for a daemon that starts, at most 1m."`
	Receipts int            `placeholder:"N" help:"Only show a model that has the changes of the first N receipts, 1 + the number of a receipt: it is without the blocks that these have taken out. With --wait also wait for it."`
	Includes []retire.Range `placeholder:"TOPIC/PARTITION/OFFSET" help:"Only show a model of a state that has read this record, of the topic or the control topic. May be given several times. With --wait also wait for it."`
	windowFlags
	daemonFlags
	jsonFlag
}

// Validate implements kong's interface.
func (c *modelCmd) Validate() error {
	if c.Wait < 0 || c.Wait > httpapi.MaxWait {
		return fmt.Errorf("--wait %v: must be 0 to %v", c.Wait, httpapi.MaxWait)
	}
	if (c.Wait > 0 || c.Receipts != 0 || c.Includes != nil) && c.chosen() {
		return errors.New("--wait, --receipts and --includes are for the served model: leave them out with --from, --to and --positions")
	}
	if c.Receipts < 0 {
		return fmt.Errorf("--receipts %d: must be 1 or more", c.Receipts)
	}
	return c.check()
}

func (c *modelCmd) Run(ctx context.Context, s *surroundings) error {
	query, timeout := c.query(), answerTimeout+c.Wait
	if c.chosen() {
		timeout += httpapi.MaxWait
	}
	if c.Receipts > 0 {
		query.Set("receipts", strconv.Itoa(c.Receipts))
	}
	if c.Includes != nil {
		query.Set("includes", rangesText(c.Includes))
	}
	for end := time.Now().Add(c.Wait); ; {
		left := max(0, time.Until(end).Round(time.Millisecond))
		if c.Wait > 0 {
			query.Set("wait", left.String())
		}
		err := show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, withQuery("/v1/model", query), timeout}, (*table).model)
		if !errors.Is(err, syscall.ECONNREFUSED) || left == 0 || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(left, 100*time.Millisecond)):
		}
	}
}

// withQuery is a path with a query, if that has anything.
func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

func (t *table) model(m *httpapi.ModelAnswer) {
	if len(m.Planes) == 0 {
		t.err = errors.New("the daemon's model has no planes")
		return
	}
	t.row("model", m.Fingerprint)
	if m.Receipts > 0 {
		t.row("receipts", fmt.Sprintf("has the changes of the first %d", m.Receipts))
	}
	if !m.MadeAt.IsZero() {
		t.row("made", m.MadeAt.Local().Format(time.DateTime))
	}
	t.window(m.Window)
	of := "live"
	if m.Window != nil {
		of = "window" // its blocks may be archived
	}
	t.row(of, counted(m.LiveRows, "row")+" in "+counted(m.LiveBlocks, "block"))
	if m.Unlabelled > 0 {
		t.row("unlabelled", counted(m.Unlabelled, "row"))
	}
	t.row("digest", m.Digest)
	if f := m.Forgetting; f != nil {
		t.row("forgetting", describeForgetting(f))
	}
	t.row("classes", countedClasses(m.Classes, m.ClassRows))
	t.row("options", describeOptions(m.Options))
	if m.Method == (svm.Lasso{}).String() {
		t.row("weights", describeWeights(m.Planes))
	}
	if m.Tuning != nil {
		t.row("tuned", describeTuning(m.Tuning))
	}
	if r := m.Refinement; r == nil {
		t.row("method", m.Method)
	} else {
		t.row("method", describeRefinement(r))
		if r.Digest != m.Digest {
			t.row("", "of an earlier live set, "+r.Digest)
		}
		for _, p := range r.Planes {
			t.row("  "+p.Class, describeRefined(&p))
		}
	}
	if k := m.Knowledge; k != nil {
		t.row("knowledge", fmt.Sprintf("%s, mu %g", counted(len(k.Rules), "rule"), k.Mu)+k.Problem)
		for _, rule := range k.Rules {
			t.row("  "+rule.Name, fmt.Sprintf("%s; slack %.3g", rule.Class, rule.Slack)+restsOn(rule.Support))
		}
	}
	if m.Calibration != nil {
		t.row("calibration", string(m.Calibration.Method))
	}
	t.sampled(m.Sample)
	t.decision(m.Decision, m.Planes)
	for _, o := range m.Offsets {
		t.row("seen", fmt.Sprintf("%s/%d before offset %d", o.Topic, o.Partition, o.Next))
	}
	if b := m.Basis; b != nil {
		t.row("kernel", b.Kernel.String())
		scaled := ""
		if b.Scale != nil {
			scaled = ", of scaled features"
		}
		t.row("basis", fmt.Sprintf("%s, %s%s", m.BasisID, describeBasis(b), scaled))
		t.row("regulariser", string(b.Regulariser))
		t.kernelPlanes(b, m.Planes)
	} else {
		t.planes(m.Features, m.Planes)
	}
}

// sampled says that rows were missing from the sample.
func (t *table) sampled(s *model.Sampled) {
	if s != nil && !s.Complete {
		t.row("sample", "lacked rows of "+counted(s.Lacking, "block")+", which the log may no longer have")
	}
}

// decision prints the rule of labels. Daemons of earlier versions do not report one.
func (t *table) decision(d *model.DecisionJSON, planes []model.PlaneJSON) {
	if d == nil {
		return
	}
	text := "by " + string(d.Rule)
	switch at := d.Threshold; {
	case at == nil:
	case *at == math.MaxFloat64:
		text += fmt.Sprintf(": no row is %s", planes[0].Class)
	case *at == -math.MaxFloat64:
		text += fmt.Sprintf(": every row is %s", planes[0].Class)
	default:
		text += fmt.Sprintf(": %s where x·w − gamma ≥ %.6g", planes[0].Class, *at)
	}
	if d.Reason != "" {
		text += " (" + d.Reason + ")"
	}
	t.row("decision", text)
	for _, c := range d.Costs {
		t.row("  cost", fmt.Sprintf("%g for %s labelled %s", c.Cost, c.Class, c.Answer))
	}
}

type blocksCmd struct {
	Archived bool `help:"List the blocks that retire.archive keeps for windows of the past, in place of the live ones."`
	daemonFlags
	jsonFlag
}

func (c *blocksCmd) Run(ctx context.Context, s *surroundings) error {
	daemon, err := c.client(s)
	if err != nil {
		return err
	}
	all := httpapi.BlocksAnswer{Blocks: []httpapi.BlockInfo{}}
	for after := ""; ; {
		var page httpapi.BlocksAnswer
		path := fmt.Sprintf("/v1/blocks?limit=1000&archived=%t&after=%s", c.Archived, url.QueryEscape(after))
		if _, err := daemon.call(ctx, http.MethodGet, path, answerTimeout, &page); err != nil {
			return err
		}
		all.Blocks = append(all.Blocks, page.Blocks...)
		if after = page.Next; after == "" {
			break
		}
	}
	if c.JSON {
		return printJSON(s.stdout, all)
	}
	t := newTable(s.stdout)
	t.row("ID", "ROWS", "TIME", "KEY")
	for _, b := range all.Blocks {
		key := ""
		if b.Key != nil {
			key = fmt.Sprintf("%q", b.Key)
		}
		t.row(b.ID, fmt.Sprint(b.Rows), utc(b.Time), key)
	}
	return t.flush()
}
