package httpapi

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/ingest/wire"
)

// A route is one call of the API. The mux and openapi.json are both made from the
// table of them, which therefore says all that a client may know: what is not in
// it is refused.
type route struct {
	method, path string
	summary      string
	notes        string // beyond the summary, in Markdown
	handle       func(*Server, http.ResponseWriter, *http.Request) error

	role     config.Role // that the caller must have; "": none
	signsIn  bool        // where the caller lacks the role, it answers a page that asks for a token
	wildcard string      // what the {…} of the path is
	query    []described // all that it takes
	rows     bool        // it takes a body, of rows; otherwise there must be none
	tagged   bool        // its answers have an ETag, and If-None-Match gives 304

	replies []reply
	// codes are those of its errors, without those that all routes have, or all
	// that want a role.
	codes []Code
}

// A reply is an answer that is no error.
type reply struct {
	status  int
	meaning string
	of      any    // of the type that the body is the JSON of, or nil
	media   string // of a body that is text
}

// The parameters of queries, in the order of the table.
var (
	modelWait = &parameter[time.Duration]{
		name: "wait", kind: patience,
		meaning: "How long to wait for a model that If-None-Match does not name; more than 1m is as 1m.",
	}
	contributionsQuery = &parameter[bool]{
		name: "contributions", kind: trueOrFalse,
		meaning: "Whether to say what each feature adds to each value. Not of a model with a basis.",
	}
	topQuery = &parameter[int]{
		name: "top", kind: wholeNumber,
		meaning: "With `contributions=true`: to show so many of a row and plane, the largest first, instead of all.",
	}
	leverageQuery = &parameter[bool]{
		name: "leverage", kind: trueOrFalse,
		meaning: "Whether to say how far each row is from those learned from.",
	}
	regionsModel = &parameter[string]{
		name: "model", kind: anyText,
		meaning: "Not looked at: a page that names the fingerprint here has its picture fetched again when the model changes.",
	}
	blocksAfter = &parameter[string]{
		name: "after", kind: anyText,
		meaning: "The page begins behind the block with this id, which need not be live any more: `next` of the page before. Empty: the first page.",
	}
	blocksLimit = &parameter[int]{
		name: "limit", kind: wholeNumber, otherwise: defaultPage,
		meaning: fmt.Sprintf("Blocks on a page; more than %d is as %[1]d.", maxPage),
	}
	compactQuery = &parameter[bool]{
		name: "compact", kind: trueOrFalse,
		meaning: "Whether to compact the file then, so that nothing is left in it of what was retired or replaced. It takes as long as writing the file anew.",
	}
	refineWait = &parameter[time.Duration]{
		name: "wait", kind: patience, otherwise: MaxWait,
		meaning: "How long to wait for the end of the refinement; more than 1m is as 1m.",
	}
)

var routes = []route{
	{
		method: "GET", path: "/v1/model", handle: (*Server).model, role: config.RoleRead,
		summary: "The served model",
		notes: "The ETag is the model's fingerprint: equal fingerprints are equal bytes. With `wait`, the answer comes as soon as there is a model that If-None-Match does not name, or the model goes away; 304 at the end of the wait. " +
			"Numbers have the fewest digits that read back as the same float64.",
		query: []described{modelWait}, tagged: true,
		replies: []reply{{200, "The model.", ModelAnswer{}, ""}},
		codes:   []Code{CodeNoModel, CodeUnavailable},
	},
	{
		method: "POST", path: "/v1/predict", handle: (*Server).predict, role: config.RolePredict,
		summary: "Labels, values and probabilities of rows",
		notes: fmt.Sprintf("Labels and weights in the rows are ignored. A body is answered as a whole or not at all, by one model. "+
			"It has at most %d MiB and %d rows, unless the daemon is configured otherwise; an answer has at most %d numbers, and leverages take at most %d multiplications, "+
			"which are rows times the square of the features or coordinates.", MaxBodyBytes>>20, MaxRows, maxNumbers, maxLeverageWork),
		query: []described{contributionsQuery, topQuery, leverageQuery}, rows: true,
		replies: []reply{{200, "The predictions, by columns.", PredictAnswer{}, ""}},
		codes:   []Code{CodeTooLarge, CodeUnsupportedMediaType, CodeNoModel, CodeUnavailable},
	},
	{
		method: "GET", path: "/v1/tuning", handle: (*Server).tuning, role: config.RoleRead,
		summary: "How ν was chosen", tagged: true,
		replies: []reply{{200, "The choice, and what every ν was worth.", model.Tuning{}, ""}},
		codes:   []Code{CodeNotFound, CodeNoModel},
	},
	{
		method: "GET", path: "/v1/quality", handle: (*Server).quality, role: config.RoleRead,
		summary: "How far answers can be trusted", tagged: true,
		replies: []reply{{200, "What the model is worth on held-out rows.", model.Quality{}, ""}},
		codes:   []Code{CodeNotFound, CodeNoModel},
	},
	{
		method: "GET", path: "/v1/epoch", handle: (*Server).epoch, role: config.RoleRead,
		summary: "The basis of a kernel, and the next one",
		replies: []reply{{200, "Which coordinates live blocks are summed in, and how far others are.", EpochAnswer{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		method: "GET", path: "/v1/regions", handle: (*Server).regions, role: config.RoleRead,
		summary: "A picture of where a kernel classifier of two features puts its classes",
		query:   []described{regionsModel}, tagged: true,
		replies: []reply{{200, "The picture.", nil, "image/svg+xml"}},
		codes:   []Code{CodeNotFound, CodeNoModel, CodeUnavailable},
	},
	{
		method: "POST", path: "/v1/reduce", handle: (*Server).reduce, role: config.RoleAdmin,
		summary: "Choose a basis now",
		notes:   "A basis is chosen from the live rows, and live blocks are put into its coordinates, in the background: `GET /v1/epoch` tells how far it is. `served` in the answer changes once planes are served in the coordinates of the new basis.",
		replies: []reply{{202, "It has begun.", EpochAnswer{}, ""}},
		codes:   []Code{CodeConflict, CodeUnavailable},
	},
	{
		method: "DELETE", path: "/v1/reduce", handle: (*Server).abandon, role: config.RoleAdmin,
		summary: "Give up the basis that is under way",
		notes:   "What is in use stays in use. Where nothing is under way nothing happens.",
		replies: []reply{{200, "What is under way has been told to end; `reducing` is shown until it has.", EpochAnswer{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		method: "GET", path: "/v1/blocks", handle: (*Server).blocks, role: config.RoleRead,
		summary: "The live blocks, page by page",
		query:   []described{blocksAfter, blocksLimit},
		replies: []reply{{200, "A page.", BlocksAnswer{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		method: "DELETE", path: "/v1/blocks/{id}", handle: (*Server).retire, role: config.RoleRetire,
		summary:  "Retire a block",
		notes:    "Once it is answered the block is out of the state, also after a crash; the model follows.",
		wildcard: "The block's id, as `GET /v1/blocks` gives it. It may be written as it is, slashes included, or percent-encoded; a ?, # or % in it must be encoded.",
		replies:  []reply{{200, "The receipt.", Receipt{}, ""}},
		codes:    []Code{CodeNotFound, CodeUnavailable},
	},
	{
		method: "POST", path: "/v1/snapshot", handle: (*Server).snapshot, role: config.RoleAdmin,
		summary: "Save the state now",
		query:   []described{compactQuery},
		replies: []reply{{200, "It is saved, durably.", SnapshotInfo{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		method: "POST", path: "/v1/refine", handle: (*Server).refine, role: config.RoleAdmin,
		summary: "Refine the planes now",
		notes:   "At most one refinement is under way at a time.",
		query:   []described{refineWait},
		replies: []reply{
			{200, "The refined model is served.", RefineAnswer{}, ""},
			{202, "It goes on; the model will have the report.", RefineAnswer{}, ""},
		},
		codes: []Code{CodeConflict, CodeNoModel, CodeUnavailable},
	},
	{
		method: "GET", path: "/v1/openapi.json", handle: (*Server).describe,
		summary: "This description", tagged: true,
		replies: []reply{{200, "An OpenAPI 3.1 document.", map[string]any{}, ""}},
	},
	{
		method: "GET", path: "/healthz", handle: (*Server).healthz,
		summary: "Whether the process answers",
		replies: []reply{{200, "It does.", Health{}, ""}},
	},
	{
		method: "GET", path: "/readyz", handle: (*Server).readyz,
		summary: "Whether this instance can answer",
		notes:   "Not without a model or a partition, nor while more records are left to read than http.ready_lag (until they were fewer once) or the state cannot be saved. The message says which.",
		replies: []reply{{200, "It is.", Health{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		method: "GET", path: "/metrics", handle: (*Server).scrape, role: config.RoleRead,
		summary: "Metrics for Prometheus",
		replies: []reply{{200, "The metrics, in the format that Accept asks for, else as text.", nil, "text/plain"}},
	},
	{
		method: "GET", path: "/{$}", handle: (*Server).page, role: config.RoleRead, signsIn: true,
		summary: "The status page",
		replies: []reply{
			{200, "The page.", nil, "text/html"},
			{401, "A page that asks for a token.", nil, "text/html"},
		},
	},
	{
		method: "GET", path: "/assets/{name}", handle: (*Server).asset,
		summary:  "Files of the status page",
		wildcard: "The file's name.", tagged: true,
		replies: []reply{{200, "The file.", nil, "*/*"}},
		codes:   []Code{CodeNotFound},
	},
}

// call answers r as the route's table says.
func (s *Server) call(route *route, w http.ResponseWriter, r *http.Request) error {
	if route.role != "" {
		err := s.authorise(r, route.role)
		if failed, ok := errors.AsType[*failure](err); ok && route.signsIn && s.access.TakesTokens() {
			return s.signIn(w, r, failed)
		}
		if err != nil {
			return err
		}
	}
	if changes(route.role) {
		extend(w, MaxWait) // saving a large state takes its time
	}
	if err := checkQuery(r, route.query); err != nil {
		return err
	}
	if !route.rows {
		if err := noBody(r); err != nil {
			return err
		}
	}
	return route.handle(s, w, r)
}

// noBody refuses a body where it would be ignored, with whatever was asked for
// in it.
func noBody(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if n, _ := io.ReadFull(r.Body, make([]byte, 1)); n > 0 {
		return fail(CodeBadRequest, "this call takes no body: what can be asked for is in the query")
	}
	return nil
}

// rowTypes are the content types that rows may have.
var rowTypes = []string{wire.JSON.ContentType(), "application/x-ndjson", wire.CSV.ContentType(), wire.LIBSVM.ContentType(), wire.Arrow.ContentType()}

// The document is generated from the table of routes and from the types of the
// answers, with their comments; a test holds it to them.
//
//go:generate go test -count=1 -run ^TestDocument$ . -update
//go:embed openapi.json
var document []byte

var documentTag = tagOf(document)

func (s *Server) describe(w http.ResponseWriter, r *http.Request) error {
	if !notModified(w, r, documentTag) {
		writeJSON(w, http.StatusOK, document)
	}
	return nil
}
