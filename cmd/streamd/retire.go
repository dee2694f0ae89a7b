package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/wire"
	"streamd/retire"
)

// selectorFlags choose blocks.
type selectorFlags struct {
	IDs       string         `name:"ids" placeholder:"FILE" help:"File with the ids of blocks, one in a line, as streamd blocks shows them. - is standard input."`
	Key       []string       `sep:"none" placeholder:"KEY" help:"Key of a block, where keys name blocks. May be given many times."`
	Header    []string       `sep:"none" placeholder:"VALUE" help:"Only blocks whose record has this value of the header that retire.header names. May be given many times: one value is enough."`
	Positions []retire.Range `sep:"none" placeholder:"TOPIC/PARTITION/FIRST-LAST" help:"Only blocks with an offset of this range between their first and last record, both ends included. May be given many times: one range is enough."`
	From      *time.Time     `placeholder:"TIME" help:"Only blocks of this event time or later, such as 2026-01-02T00:00:00Z."`
	To        *time.Time     `placeholder:"TIME" help:"Only blocks of an event time before this."`
}

// retireCmd retires the blocks that its arguments and flags choose.
type retireCmd struct {
	Blocks []string `arg:"" optional:"" name:"block" help:"Ids of blocks, as streamd blocks shows them, or their keys."`
	selectorFlags
	DryRun bool `help:"Change nothing, and show which blocks would be retired."`
	Here   bool `help:"Retire them in this replica alone, though there is a control topic (retire.topic). They also give up their places in the window of retire.keep."`
	daemonFlags
	jsonFlag
}

// Help is called by kong.
func (c *retireCmd) Help() string {
	return "A block is chosen if all that is given applies to it: arguments, --ids and --key name blocks, and --header, --positions, --from and --to narrow the choice. " +
		"Without names it is among all blocks: live, archived, and withdrawn by the control topic. All chosen blocks are retired together, or none. " +
		"An argument of the form TOPIC/PARTITION/OFFSET, or that begins with key:, is an id, and any other one is a key."
}

// empty reports whether no flag says which blocks.
func (f *selectorFlags) empty() bool {
	return f.IDs == "" && f.Key == nil && f.Header == nil && f.Positions == nil && f.From == nil && f.To == nil
}

// check says why the flags choose nothing.
func (f *selectorFlags) check() error {
	if f.empty() {
		return errors.New("nothing says which blocks: give --ids, --key, --header, --positions, --from or --to")
	}
	return retire.CheckTimes(f.From, f.To)
}

// selector reads the file of ids.
func (f *selectorFlags) selector(s *surroundings) (*retire.Selector, error) {
	chosen := &retire.Selector{Keys: f.Key, Headers: f.Header, Positions: f.Positions, From: f.From, To: f.To}
	if f.IDs != "" {
		ids, err := readIDs(f.IDs, s.stdin)
		if err != nil {
			return nil, fmt.Errorf("--ids %s: %w", f.IDs, err)
		}
		chosen.IDs = ids
	}
	return chosen, nil
}

// Validate implements kong's interface.
func (c *retireCmd) Validate() error {
	if c.Blocks == nil && c.empty() {
		return errors.New("nothing says which blocks: give their ids or keys, --ids, --key, --header, --positions, --from or --to")
	}
	return retire.CheckTimes(c.From, c.To)
}

// positionID matches the id of a block that is named by the position of its first record, or of its
// first row in a file.
var positionID = regexp.MustCompile(`^([A-Za-z0-9._-]+|file:[^/\pC]+)/[0-9]+/[0-9]+$`)

// idOf is the id of a block by an argument. A text that has the form of an id is one, so that a
// listed id always names its own block. Any other text is a key.
func idOf(block string) string {
	if strings.HasPrefix(block, retire.KeyPrefix) || positionID.MatchString(block) {
		return block
	}
	return retire.KeyID(block)
}

func (c *retireCmd) Run(ctx context.Context, s *surroundings) error {
	chosen, err := c.selector(s)
	if err != nil {
		return err
	}
	keys := false
	for _, block := range c.Blocks {
		id := idOf(block)
		keys = keys || id != block
		chosen.IDs = append(chosen.IDs, id)
	}
	body, err := json.Marshal(chosen)
	if err != nil {
		return err
	}
	if len(body) > httpapi.MaxBodyBytes {
		return fmt.Errorf("the ids, keys and headers take %d bytes, and the daemon takes %d at once: retire the blocks in parts", len(body), httpapi.MaxBodyBytes)
	}
	query := url.Values{}
	if c.DryRun {
		query.Set("dry_run", "true")
	}
	if c.Here {
		query.Set("here", "true")
	}
	q := question{c.daemonFlags, c.jsonFlag, http.MethodPost, withQuery("/v1/retire", query), adminTimeout}
	err = showSent(ctx, s, q, payload{contentType: wire.JSON.ContentType(), body: body}, (*table).retirement)
	if known, ok := errors.AsType[*httpapi.ErrorDetail](err); ok && known.Code == httpapi.CodeNotFound && keys {
		return fmt.Errorf("%w: what is not the id of a block was taken for a key; streamd blocks shows ids and keys", err)
	}
	return err
}

// readIDs reads ids, one a line. Blank lines and a byte order mark are passed over.
func readIDs(path string, stdin io.Reader) (ids []string, err error) {
	from := stdin
	if path != "-" {
		file, err := os.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, errors.New("no such file; it has ids, one in a line; to retire one block by its id give that without --ids")
		case err != nil:
			return nil, errors.Unwrap(err) // the caller names the file
		}
		defer file.Close()
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, httpapi.MaxBodyBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > httpapi.MaxBodyBytes:
		return nil, fmt.Errorf("there are more than %d bytes of ids: retire the blocks in parts", httpapi.MaxBodyBytes)
	}
	const mark = "\ufeff" // as some programs begin a file
	for line := range strings.Lines(strings.TrimPrefix(string(content), mark)) {
		if id := strings.TrimSpace(line); id != "" {
			ids = append(ids, id)
		}
	}
	if ids == nil {
		return nil, errors.New("there is no id in it")
	}
	return ids, nil
}

// shownBlocks bounds the blocks that a retirement shows to people.
const shownBlocks = 10

func (t *table) retirement(r *httpapi.Retirement) {
	done, returns := "retired", "cannot come back now"
	if r.DryRun {
		done, returns = "would retire", "could not come back then"
	}
	t.row(done, fmt.Sprintf("%s in %s", counted(r.Rows, "row"), counted(r.Blocks, "block")))
	if r.Archived > 0 {
		t.row("archived", fmt.Sprintf("%d of the blocks", r.Archived))
	}
	if r.Withdrawn > 0 {
		t.row("withdrawn", fmt.Sprintf("%d of the blocks, by the control topic: they %s", r.Withdrawn, returns))
	}
	t.row("event times", utc(r.Earliest)+" to "+utc(r.Latest))
	for _, p := range r.Positions {
		t.row("positions", p.String())
	}
	for _, b := range r.First[:min(len(r.First), shownBlocks)] {
		t.row("block", b.ID)
		if b.Proof != "" {
			t.row("proof", b.Proof)
		}
	}
	if more := r.Blocks - shownBlocks; more > 0 {
		t.row("", fmt.Sprintf("and %d more", more))
	}
	if r.NotLive > 0 {
		t.row("not live", fmt.Sprintf("%d of the ids and keys, the first %s", r.NotLive, r.NotLiveIDs[0]))
	}
	if r.NoHeader > 0 {
		t.row("no header", fmt.Sprintf("%s spared: the records lack the header, or were read before retire.header was set", counted(int64(r.NoHeader), "block")))
	}
	if r.RetiredAt == nil { // a dry run
		t.row("digest", r.DigestBefore)
		return
	}
	t.row("at", r.RetiredAt.Local().Format(time.DateTime))
	if r.Control != "" {
		t.row("in", "every replica, by the control topic: "+r.Control)
	} else {
		t.row("in", "this replica only: there is no control topic (retire.topic)")
	}
	t.row("digest before", r.DigestBefore)
	t.row("digest after", r.DigestAfter)
	for _, place := range r.Remains {
		t.row("may remain in", place)
	}
	if r.InBasis {
		t.row("basis", "a basis was chosen from these rows: their numbers may be among the points until a later one is in use (streamd epoch)")
	}
	for _, leaf := range r.Receipts {
		t.row("receipt", fmt.Sprintf("%d (streamd receipts get %d -o %d.tlog-proof)", leaf, leaf, leaf))
	}
	if n := len(r.Receipts); n > 0 {
		t.row("model", fmt.Sprintf("the first without them: streamd model --receipts %d --wait 1m", r.Receipts[n-1]+1))
	}
}
