package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/ingest/schema"
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
	hereQuery = &parameter[bool]{
		name: "here", kind: trueOrFalse,
		meaning: "Whether to retire the blocks in this replica alone where there is a control topic (`retire.topic`). Then they also give up their places in the window of `retire.keep`, and a replica that reads the log anew has them again.",
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
	done, err := s.service.Retire(r.Context(), retire.Selector{IDs: []string{r.PathValue("id")}}, RetireOptions{Here: hereQuery.of(r)})
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
	chosen, err := retire.ParseSelector(content)
	if err != nil {
		return fail(CodeBadRequest, "%v", err)
	}
	done, err := s.service.Retire(r.Context(), chosen, RetireOptions{DryRun: dryRunQuery.of(r), Here: hereQuery.of(r)})
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

var copyReceipts = &parameter[bool]{
	name: "receipts", kind: trueOrFalse, otherwise: true,
	meaning: "Whether the copy has the log of receipts.",
}

func (s *Server) copySnapshot(w http.ResponseWriter, r *http.Request) error {
	extend(w, copyPatience)
	file, size, err := s.service.CopySnapshot(r.Context(), copyReceipts.of(r))
	if err != nil {
		return err
	}
	defer file.Close()
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(size, 10))
	for err == nil {
		select {
		case <-s.stopping:
			err = errors.New("the daemon stops")
			continue
		default:
		}
		extend(w, 0) // a client that takes nothing for that long has gone
		_, err = io.CopyN(w, file, copyStretch)
	}
	if err != io.EOF { // the client sees that the body is short
		s.log.Warn().Err(err).Msg("a copy of the snapshot was not taken to its end")
	}
	return nil
}

const (
	copyPatience = 10 * time.Minute // for the copy to be written
	copyStretch  = 16 << 20         // bytes that a client takes within WriteTimeout
)

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

// LearnedLists are lists of values that were learned from the live rows.
type LearnedLists struct {
	Lists   []schema.Learned `json:"lists"`            // lists by category, with what they cover
	Blocks  int              `json:"blocks"`           // live blocks that were counted
	Rows    int64            `json:"rows"`             // rows of these
	Changes bool             `json:"changes"`          // whether the lists are others than before: then live blocks are read again, and the former features are served until all have been
	Schema  *schema.Schema   `json:"schema,omitempty"` // the schema of features with the lists
}

// learnLists learns lists of values, and answers when they are saved.
func (s *Server) learnLists(w http.ResponseWriter, r *http.Request) error {
	extend(w, countPatience)
	answer, err := s.service.LearnLists(r.Context())
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

// countPatience bounds how long the caller waits for a pass over the live blocks.
const countPatience = time.Hour

// abandon ends a reduction or a rebuild that is under way.
func (s *Server) abandon(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Abandon(r.Context()); err != nil {
		return err
	}
	return s.epoch(w, r)
}
