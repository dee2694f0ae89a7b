package registry

import (
	"container/list"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Config says where a registry is.
type Config struct {
	URL                string
	Username, Password string             // empty: none
	TLS                func() *tls.Config // of each new connection; nil: the system's authorities
}

// The bounds of the package comment.
const (
	maxAnswer     = 1 << 20
	maxTime       = 10 * time.Second
	maxDepth      = 16
	maxReferences = 64
	maxTexts      = 4 << 20

	keptSchemas = 1000
	keptTexts   = 64 << 20
	keptBad     = 10 * time.Second

	firstPause, longestPause = 250 * time.Millisecond, 10 * time.Second
)

// Client asks a registry. It is safe for concurrent use.
type Client struct {
	base string
	cfg  Config
	http *http.Client
	asks singleflight.Group

	mu    sync.Mutex
	known map[uint32]*list.Element // of an *entry
	used  list.List                // the latest first
	texts int                      // bytes in known
	out   outage
}

// entry is what is known of an id.
type entry struct {
	id     uint32
	schema *Schema
	bad    *BadIDError // in place of a schema
	until  time.Time   // when bad is forgotten
}

// outage is the AwayErrors in a row.
type outage struct {
	since time.Time // of the first; zero: the last answer was one
	why   error
	pause time.Duration
	next  time.Time // when the registry may be asked again
}

// New makes a client. It does not connect.
func New(cfg Config) (*Client, error) {
	base, err := CheckURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: maxTime}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    maxTime,
		ResponseHeaderTimeout:  maxTime,
		MaxResponseHeaderBytes: 64 << 10,
		MaxConnsPerHost:        4,
		IdleConnTimeout:        time.Minute,
		ForceAttemptHTTP2:      true,
	}
	if cfg.TLS != nil {
		t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			now := cfg.TLS()
			if now.ServerName == "" {
				now.ServerName, _, _ = net.SplitHostPort(address)
			}
			return (&tls.Dialer{NetDialer: dialer, Config: now}).DialContext(ctx, network, address)
		}
	}
	return &Client{
		base: base, cfg: cfg, known: map[uint32]*list.Element{},
		http: &http.Client{
			Transport: t, Timeout: maxTime,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// CheckURL says why a text is not the URL of a registry. base is it without a slash at its end.
func CheckURL(text string) (base string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("want the URL of a schema registry without a user and a query, such as https://registry.example:8081")
	}
	return strings.TrimRight(text, "/"), nil
}

// Get returns the schema of an id, by what the registry has said last, or by asking it once. The
// error is an *AwayError or a *BadIDError. After Await it needs no registry, unless a thousand
// other schemas were used meanwhile.
func (c *Client) Get(id uint32) (*Schema, error) { return c.schema(id, false) }

// schema is Get. fresh is whether a BadIDError has to be a new one.
func (c *Client) schema(id uint32, fresh bool) (*Schema, error) {
	if s, err, ok := c.kept(id, fresh); ok {
		return s, err
	}
	got, err, _ := c.asks.Do(strconv.FormatUint(uint64(id), 10), func() (any, error) {
		if s, err, ok := c.kept(id, fresh); ok { // another call has asked meanwhile
			return s, err
		}
		s, err := c.ask(id)
		c.keep(id, s, err)
		return s, err
	})
	if err != nil {
		return nil, err
	}
	return got.(*Schema), nil
}

// Await asks for a schema until there is an answer or ctx has ended. The error is a *BadIDError
// that is not older than ten seconds, or that of ctx.
func (c *Client) Await(ctx context.Context, id uint32) (*Schema, error) {
	for {
		s, err := c.schema(id, true)
		if away := (*AwayError)(nil); !errors.As(err, &away) {
			return s, err
		}
		c.mu.Lock()
		pause := max(time.Until(c.out.next), firstPause/10)
		c.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Away says since when and why the registry has not answered. The time is zero if its last answer
// was one.
func (c *Client) Away() (since time.Time, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.since, c.out.why
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// kept is what is known of an id. It is not ok if the registry has to be asked.
func (c *Client) kept(id uint32, fresh bool) (s *Schema, err error, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.known[id]; at != nil {
		e := at.Value.(*entry)
		switch {
		case e.bad == nil:
			c.used.MoveToFront(at)
			return e.schema, nil, true
		case !fresh || time.Now().Before(e.until):
			return nil, e.bad, true
		}
	}
	if time.Now().Before(c.out.next) {
		return nil, &AwayError{ID: id, Why: c.out.why}, true
	}
	return nil, nil, false
}

// keep notes the answer for an id.
func (c *Client) keep(id uint32, s *Schema, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var bad *BadIDError
	if err != nil && !errors.As(err, &bad) {
		o, now := &c.out, time.Now()
		if o.why = errors.Unwrap(err); o.since.IsZero() {
			o.since = now
		}
		o.pause = min(max(2*o.pause, firstPause), longestPause)
		o.next = now.Add(o.pause)
		return
	}
	c.out = outage{}
	if at := c.known[id]; at != nil {
		c.drop(at)
	}
	e := &entry{id: id, schema: s, bad: bad, until: time.Now().Add(keptBad)}
	c.known[id] = c.used.PushFront(e)
	if s != nil {
		c.texts += s.bytes()
	}
	for c.used.Len() > keptSchemas || c.texts > keptTexts && c.used.Len() > 1 {
		c.drop(c.used.Back())
	}
}

// drop forgets an entry.
func (c *Client) drop(at *list.Element) {
	e := c.used.Remove(at).(*entry)
	delete(c.known, e.id)
	if e.schema != nil {
		c.texts -= e.schema.bytes()
	}
}

// answer is what the registry says of a schema.
type answer struct {
	Schema     *string `json:"schema"`
	Type       string  `json:"schemaType"`
	References []named `json:"references"`
}

// named is a reference of a schema to a version of a subject.
type named struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// ask asks the registry for a schema and what it refers to.
func (c *Client) ask(id uint32) (*Schema, error) {
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	a, reason, err := c.get(ctx, "/schemas/ids/"+strconv.FormatUint(uint64(id), 10))
	if err != nil {
		return nil, &AwayError{id, err}
	}
	if reason != "" {
		return nil, &BadIDError{id, reason}
	}
	s := &Schema{ID: id, Text: *a.Schema}
	var known bool
	if s.Kind, known = kindNames[a.Type]; !known {
		return nil, &BadIDError{id, fmt.Sprintf("its type is %.40q: want AVRO, JSON or PROTOBUF", a.Type)}
	}
	if s.Kind == JSON {
		return s, nil // rows of JSON need no schema
	}
	r := resolver{Client: c, to: s, seen: map[string]bool{}}
	if reason, err = r.add(ctx, a.References, 0); err != nil {
		return nil, &AwayError{id, err}
	}
	if reason != "" {
		return nil, &BadIDError{id, reason}
	}
	return s, nil
}

// resolver collects what a schema refers to.
type resolver struct {
	*Client
	to   *Schema
	seen map[string]bool // names
}

// add collects references, and what they refer to before them. The reason is that of a schema that
// cannot be used, and the error that of a registry that is away.
func (r *resolver) add(ctx context.Context, list []named, depth int) (reason string, err error) {
	if depth >= maxDepth && len(list) > 0 {
		return fmt.Sprintf("its references are more than %d deep, or go round in a circle", maxDepth), nil
	}
	for _, n := range list {
		if r.seen[n.Name] {
			continue
		}
		r.seen[n.Name] = true
		if len(r.seen) > maxReferences {
			return fmt.Sprintf("it has more than %d references", maxReferences), nil
		}
		a, reason, err := r.get(ctx, "/subjects/"+url.PathEscape(n.Subject)+"/versions/"+strconv.Itoa(n.Version))
		if err != nil || reason != "" {
			return "its reference to " + strconv.Quote(n.Name) + ": " + reason, err
		}
		if reason, err = r.add(ctx, a.References, depth+1); err != nil || reason != "" {
			return reason, err
		}
		r.to.References = append(r.to.References, Reference{n.Name, *a.Schema})
		if r.to.bytes() > maxTexts {
			return fmt.Sprintf("it and its references have more than %d bytes", maxTexts), nil
		}
	}
	return "", nil
}

// The registry's codes of what is not there.
const (
	codeNoSubject = 40401
	codeNoVersion = 40402
	codeNoSchema  = 40403
)

// get asks for one schema. The reason says why there is none that can be used, and the error why
// nobody knows.
func (c *Client) get(ctx context.Context, path string) (a *answer, reason string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json")
	if c.cfg.Username != "" {
		request.SetBasicAuth(c.cfg.Username, c.cfg.Password)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) { // it has the URL, which is configured
			err = wrapped.Err
		}
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("its answer is cut off: %w", err)
	case response.StatusCode == http.StatusNotFound:
		return nil, notFound(body), errIf(notFound(body) == "", "the answer is 404, not in a registry's words: see whether format.registry.url is right")
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return nil, "", fmt.Errorf("it does not let us in (%d): see format.registry.username and password_file", response.StatusCode)
	case response.StatusCode/100 == 3:
		return nil, "", fmt.Errorf("it redirects (%d), which is not followed: let format.registry.url be the last address", response.StatusCode)
	case response.StatusCode != http.StatusOK:
		return nil, "", fmt.Errorf("the answer is %d", response.StatusCode)
	case len(body) > maxAnswer:
		return nil, fmt.Sprintf("the registry's answer has more than %d bytes", maxAnswer), nil
	}
	a = &answer{}
	if err := json.Unmarshal(body, a); err != nil || a.Schema == nil {
		return nil, "", errors.New("the answer is not that of a schema registry: see whether format.registry.url is right")
	}
	return a, "", nil
}

// notFound is what a registry's 404 says; empty: it is not a registry's.
func notFound(body []byte) string {
	var e struct {
		Code int `json:"error_code"`
	}
	if len(body) > maxAnswer || json.Unmarshal(body, &e) != nil {
		return ""
	}
	switch e.Code {
	case codeNoSubject, codeNoVersion, codeNoSchema:
		return "the schema registry does not know it"
	}
	return ""
}

// errIf is an error where is holds.
func errIf(is bool, text string) error {
	if is {
		return errors.New(text)
	}
	return nil
}
