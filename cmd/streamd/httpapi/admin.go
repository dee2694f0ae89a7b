package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"streamd/ingest/wire"
	"streamd/kernels/reduce"
	"streamd/retire"
)

const (
	defaultPage = 100  // blocks
	maxPage     = 1000 // blocks; the upper bound of a limit
)

// BlocksAnswer is a page of the live blocks.
type BlocksAnswer struct {
	Blocks []BlockInfo `json:"blocks"`         // blocks in the order of their times
	Next   string      `json:"next,omitempty"` // the parameter after of the next page; absent on the last page
}

var (
	blocksAfter = &parameter[string]{
		name: "after", kind: anyText,
		meaning: "The page begins behind the block with this id, which need not be live any more: `next` of the previous page. Empty means the first page.",
	}
	blocksArchived = &parameter[bool]{
		name: "archived", kind: trueOrFalse,
		meaning: "Whether to list the archived blocks (`retire.archive`) in place of the live ones.",
	}
	blocksLimit = &parameter[int]{
		name: "limit", kind: wholeNumber, otherwise: defaultPage,
		meaning: fmt.Sprintf("Blocks on a page. More than %d counts as %[1]d.", maxPage),
	}
	dryRunQuery = &parameter[bool]{
		name: "dry_run", kind: trueOrFalse,
		meaning: "Whether to change nothing, and only to say which blocks would be retired.",
	}
	compactQuery = &parameter[bool]{
		name: "compact", kind: trueOrFalse,
		meaning: "Whether to compact the file afterwards, so that it keeps nothing of retired or replaced blocks. It takes as long as writing the whole file.",
	}
)

func (s *Server) blocks(w http.ResponseWriter, r *http.Request) error {
	page, next, err := s.service.Blocks(r.Context(), blocksArchived.of(r), blocksAfter.of(r), min(blocksLimit.of(r), maxPage))
	if err != nil {
		return err
	}
	return answerJSON(w, BlocksAnswer{Blocks: listed(page), Next: next})
}

func (s *Server) retire(w http.ResponseWriter, r *http.Request) error {
	done, err := s.service.Retire(r.Context(), Selector{IDs: []string{r.PathValue("id")}}, false)
	if err != nil {
		return err
	}
	return answerRetirement(w, done)
}

func answerRetirement(w http.ResponseWriter, done Retirement) error {
	done.Positions, done.First, done.NotLiveIDs, done.Offsets = listed(done.Positions), listed(done.First), listed(done.NotLiveIDs), listed(done.Offsets)
	return answerJSON(w, done)
}

// retireChosen retires the blocks that the body chooses.
func (s *Server) retireChosen(w http.ResponseWriter, r *http.Request) error {
	if !takesSelector(r.Header.Get("Content-Type")) {
		return fail(CodeUnsupportedMediaType, "Content-Type %q: want %s", r.Header.Get("Content-Type"), selectorTypes[0])
	}
	zipped, err := isZipped(r)
	if err != nil {
		return err
	}
	memory := &share{memory: s.memory, most: s.config.Memory}
	defer memory.shrink(0)
	content, err := s.content(r, zipped, memory)
	if err != nil {
		return err
	}
	if len(content) > shortBody {
		// A name of one letter takes four bytes of the body, and eighty in the lists of
		// names while they grow.
		if err := memory.grow(r.Context(), 20*int64(len(content))); err != nil {
			return err
		}
	}
	chosen, err := ParseSelector(content)
	if err != nil {
		return err
	}
	done, err := s.service.Retire(r.Context(), chosen, dryRunQuery.of(r))
	if err != nil {
		return err
	}
	return answerRetirement(w, done)
}

// selectorTypes are the content types of a selector: JSON, also under the type that curl
// sends by default.
var selectorTypes = []string{wire.JSON.ContentType(), formType}

func takesSelector(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "" || slices.Contains(selectorTypes, media)
}

// ParseSelector reads a selector. Nothing in it is ignored, and a part that is empty is refused:
// with a mistake in it, a selector must not choose more than was meant.
func ParseSelector(content []byte) (s Selector, err error) {
	type part struct {
		into any
		want string
	}
	const texts, moment = "a list of texts", "a time such as 2026-01-02T03:04:05Z"
	parts := map[string]part{
		"ids": {&s.IDs, texts}, "keys": {&s.Keys, texts}, "headers": {&s.Headers, texts}, "positions": {&s.Positions, texts + " such as orders/3/100-199"},
		"from": {&s.From, moment}, "to": {&s.To, moment},
	}
	all := len(parts)
	bad := func(format string, args ...any) (Selector, error) {
		return Selector{}, fail(CodeBadRequest, "the selector: "+format, args...)
	}
	const example = `an object such as {"from":"2026-01-02T00:00:00Z","to":"2026-01-03T00:00:00Z"}`
	from := json.NewDecoder(bytes.NewReader(content))
	if opening, err := from.Token(); err != nil || opening != json.Delim('{') {
		return bad("want %s", example)
	}
	for from.More() {
		name, err := from.Token() // within an object it is a text
		if err != nil {
			return bad("want a whole object: %v", err)
		}
		p, known := parts[name.(string)]
		if !known {
			return bad("%.100q is unknown or given twice: it may have ids, keys, headers, positions, from and to", name)
		}
		delete(parts, name.(string))
		if err := from.Decode(p.into); err != nil {
			if name == "positions" && !errors.As(err, new(*json.UnmarshalTypeError)) {
				return bad("positions: %v", err) // it names the range
			}
			return bad("%s: want %s", name, p.want)
		}
		switch v := reflect.ValueOf(p.into).Elem(); {
		case v.IsNil():
			return bad("%s is null: leave it out, or say which blocks it chooses", name)
		case v.Kind() == reflect.Slice && v.Len() == 0:
			return bad("%s is empty: leave it out, or say which blocks it chooses", name)
		}
	}
	if _, err := from.Token(); err != nil {
		return bad("want a whole object: %v", err)
	}
	if _, err := from.Token(); err != io.EOF {
		return bad("there is more behind it")
	}
	switch {
	case len(parts) == all:
		return bad("it chooses nothing: want %s", example)
	case slices.Contains(s.IDs, ""), slices.Contains(s.Keys, ""), slices.Contains(s.Headers, ""), slices.Contains(s.Positions, retire.Range{}):
		return bad("one of its ids, keys, headers or positions is empty")
	case s.To != nil && s.To.IsZero(): // of a program that has no time; a retire.Selection would take it for none
		return bad("to is 0001-01-01T00:00:00Z: no event time is before it")
	}
	if err := retire.CheckTimes(s.From, s.To); err != nil {
		return bad("%v", err)
	}
	return s, nil
}

// compactPatience bounds how long the caller waits for a compaction.
const compactPatience = 10 * time.Minute

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) error {
	if compactQuery.of(r) {
		extend(w, compactPatience)
	}
	info, err := s.service.Snapshot(r.Context(), compactQuery.of(r))
	if err != nil {
		return err
	}
	info.Offsets, info.Resume = listed(info.Offsets), listed(info.Resume)
	return answerJSON(w, info)
}

func (s *Server) epoch(w http.ResponseWriter, r *http.Request) error {
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

var (
	pruneQuery = &parameter[string]{
		name: "prune", kind: oneOf(prunings()...),
		meaning: "Choose a part of the basis in use instead, by K(Z, Z) and the sums of the live rows: no row is read. `lda` selects forward by linear discriminant analysis, `fisher` eliminates by Fisher's direction, " +
			"`cholesky` takes points that are far from each other, and `eigen` the leading coordinates of an eigen-subspace.",
	}
	basisQuery = &parameter[int]{
		name: "basis", kind: wholeNumber,
		meaning: "Most coordinates of the part: fewer than those of the basis in use. It goes with `prune`.",
	}
)

func prunings() (names []string) {
	for _, p := range reduce.Prunings() {
		names = append(names, string(p))
	}
	return names
}

// reduce begins a reduction and answers at once. GET /v1/epoch has its progress.
func (s *Server) reduce(w http.ResponseWriter, r *http.Request) error {
	how, points := pruneQuery.of(r), basisQuery.of(r)
	var err error
	switch {
	case how == "" && points > 0:
		return fail(CodeBadRequest, "basis=%d goes with prune: kernel.basis is the size of a basis that is chosen from rows", points)
	case how == "":
		err = s.service.Reduce(r.Context())
	case points == 0:
		return fail(CodeBadRequest, "prune=%s goes with basis, the number of coordinates that stay", how)
	default:
		err = s.service.Prune(r.Context(), reduce.Pruning(how), points)
	}
	if err != nil {
		return err
	}
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSONWith(w, http.StatusAccepted, answer)
}

// abandon ends a reduction or a rebuild that is under way.
func (s *Server) abandon(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Abandon(r.Context()); err != nil {
		return err
	}
	return s.epoch(w, r)
}
