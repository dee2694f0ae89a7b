package httpapi

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/config"
)

// route is one call of the API. The mux and openapi.json are both made from the table of
// routes: a client can know all of it, and anything else is refused.
type route struct {
	name         string // operation id of the document: the method's name in generated clients
	tag          tag
	method, path string
	summary      string
	notes        string // more text, in Markdown
	handle       func(*Server, http.ResponseWriter, *http.Request) error

	role     config.Role // role that the caller must have; "": none
	signsIn  bool        // a caller without the role gets a page that asks for a token
	meanings []string    // of the {…} in the path, in their order
	query    []described // all parameters that it takes
	rows     bool        // the body is rows
	chooses  bool        // the body is a Selector
	infers   bool        // the body is an InferRequest
	follows  bool        // its answer is a stream of events, which Last-Event-ID continues
	tagged   bool        // its answers have an ETag, and If-None-Match can give 304
	named    bool        // its answers have a header that names the model

	replies []reply
	// codes of its errors, beside those of all routes and of all that want a role.
	codes []Code
}

// tag is a subject of calls. Generated clients group the calls by it.
type tag string

const (
	tagModel       tag = "model"
	tagPredictions tag = "predictions"
	tagWindows     tag = "windows"
	tagBasis       tag = "basis"
	tagBlocks      tag = "blocks"
	tagReceipts    tag = "receipts"
	tagSnapshot    tag = "snapshot"
	tagStatus      tag = "status"
	tagProtocol    tag = "open-inference"
	tagPage        tag = "page"
)

// tagMeanings has the tags in the order of the document, with what they are about.
var tagMeanings = []struct {
	tag     tag
	meaning string
}{
	{tagModel, "The served model, how it was chosen, and how good it is."},
	{tagPredictions, "Predictions for rows."},
	{tagWindows, "Models of windows of the blocks, beside each other."},
	{tagBasis, "The basis of a kernel."},
	{tagBlocks, "The live blocks, and their retirement."},
	{tagReceipts, "The log of receipts."},
	{tagSnapshot, "The saved state."},
	{tagStatus, "The daemon: health, problems, events and figures over time."},
	{tagProtocol, "The Open Inference Protocol, version 2: predictions in tensors."},
	{tagPage, "The status page."},
}

// reply is an answer that is no error. An answer of several types has one reply for each,
// whose meanings follow each other.
type reply struct {
	status  int
	meaning string
	of      any    // a value of the JSON body's type, or of that of the data of events; or nil
	media   string // media type of a body that is not JSON
}

// retireNotes say which replicas forget, for the document.
const retireNotes = "With a control topic (`retire.topic`) the daemon writes the positions of the blocks to that topic, so that every replica forgets them, and answers when it has followed these records itself. Without one, it retires them in this replica only: `control` in the answer is absent."

// Meanings of the parts of the protocol's paths.
const (
	modelMeaning   = "Name of the model: `model.name` of the configuration."
	versionMeaning = "Version of the model: its fingerprint. Only the served model can answer; with another version it is 404."
)

// inferNotes describe an inference, for the document.
var inferNotes = fmt.Sprintf("It is `POST /v1/predict` in tensors, with the same limits, treatment of missing values and decision. "+
	"Each input is a feature, of shape [rows] or [rows, 1]; a model without a schema of features also takes one input [rows, features] with all numbers in the model's order. "+
	"Texts are BYTES. FP32 is the number of single precision. null, and NaN in bytes, is a missing value. Inputs that the model does not have are ignored.\n\n"+
	"Where predictions are remembered, an input `id` (BYTES or INT64) has the id of each row, up to %d rows. Without it, the `id` of a request for a single row is that row's. For more rows, the request's id is repeated in the answer, and nothing is remembered. "+
	"Of a daemon that does not remember predictions, it is repeated only.\n\n"+
	"The extension of binary tensors is known: with the header `%s`, elements follow the JSON as bytes.", maxRememberedRows, inferHeader)

var routes = []route{
	{
		name: "getModel", tag: tagModel,
		method: "GET", path: "/v1/model", handle: (*Server).model, role: config.RoleRead,
		summary: "The served model",
		notes: "The ETag is the model's fingerprint: of its sums, settings and planes, without times and offsets. So it is weak, and alike for daemons that serve the same model. With `wait`, the answer comes once there is a model that If-None-Match does not name, or once the model goes away. At the end of the wait it is 304. " +
			"Numbers have the fewest digits that read back to the same float64.\n\n" + windowNotes,
		query: slices.Concat(needQuery, windowQuery), tagged: true,
		replies: []reply{{200, "The model.", ModelAnswer{}, ""}},
		codes:   []Code{CodeNotFound, CodeNoModel, CodeUnavailable, CodeNotYet},
	},
	{
		name: "predict", tag: tagPredictions,
		method: "POST", path: "/v1/predict", handle: (*Server).predict, role: config.RolePredict,
		summary: "Labels, values and probabilities of rows",
		notes: fmt.Sprintf("Labels, weights and columns that the model does not have are ignored. A missing value counts as the model says under `missing`. One model answers the whole body, or the call fails. "+
			"A body has at most %d MiB and %d rows, unless the daemon is configured otherwise. An answer has at most %d numbers. Leverages take at most %d multiplications: "+
			"rows times the square of the number of features or coordinates.\n\n", MaxBodyBytes>>20, MaxRows, maxNumbers, maxLeverageWork) + windowNotes + "\n\n" + rememberNotes,
		query: slices.Concat(rememberQuery, []described{formQuery, contributionsQuery, topQuery, leverageQuery}, needQuery, windowQuery), rows: true, named: true,
		replies: []reply{
			{200, "The predictions, in the form of Accept and `form`. ", predictions.PredictAnswer{}, ""},
			{200, "", predictions.PredictRowsAnswer{}, ""},
			{200, "CSV has a header and the columns `label`, `value_C` for the plane of each class C and, where the decision goes by probabilities, `probability_C` for each class C. Labels are as the producers sent them, quoted by RFC 4180: a spreadsheet may take one such as `=1+2` for a formula. ", nil, "text/csv"},
			{200, "Arrow has the same columns: `label` is a dictionary of texts, the others are float64.", nil, "application/vnd.apache.arrow.stream"},
		},
		codes: []Code{CodeNotFound, CodeConflict, CodeTooLarge, CodeUnsupportedMediaType, CodeNotAcceptable, CodeNoModel, CodeUnavailable, CodeNotYet},
	},
	{
		name: "getTuning", tag: tagModel,
		method: "GET", path: "/v1/tuning", handle: (*Server).tuning, role: config.RoleRead,
		summary: "How ν was chosen", tagged: true,
		replies: []reply{{200, "The choice, and the results of every ν.", model.Tuning{}, ""}},
		codes:   []Code{CodeNotFound, CodeNoModel},
	},
	{
		name: "getQuality", tag: tagModel,
		method: "GET", path: "/v1/quality", handle: (*Server).quality, role: config.RoleRead,
		summary: "How good the answers are", tagged: true,
		replies: []reply{{200, "Correctness and reliability on held-out rows.", model.Quality{}, ""}},
		codes:   []Code{CodeNotFound, CodeNoModel},
	},
	{
		name: "getPrequential", tag: tagModel,
		method: "GET", path: "/v1/prequential", handle: (*Server).prequential, role: config.RoleRead,
		summary: "How good the answers for arriving rows are",
		notes: "Rows are judged by the served model before it learns from them; of a fast stream, some of each block. `window` and `fading` have a confusion matrix. " +
			"The drift detectors watch the errors of these rows, and the loss of the served planes on the newest blocks.",
		replies: []reply{{200, "Correctness, confusion matrices and squared losses, and the drift detectors.", model.Prequential{}, ""}},
	},
	{
		name: "getHistory", tag: tagStatus,
		method: "GET", path: "/v1/history", handle: (*Server).history, role: config.RoleRead,
		summary: "Some figures over time",
		notes:   "Rows a second, correctness, lag and memory in equal intervals. The snapshot keeps them over a restart.",
		query:   []described{historySpan},
		replies: []reply{{200, "The figures, by columns.", model.History{}, ""}},
	},
	{
		name: "getWindows", tag: tagWindows,
		method: "GET", path: "/v1/windows", handle: (*Server).steps, role: config.RoleRead,
		summary: "The planes of successive windows",
		notes:   "Windows of the live and archived blocks by event time, with the angles of their planes to those of the first and of the last one.",
		query:   []described{stepsStep, stepsWindow, stepsFrom, stepsTo, stepsNu},
		replies: []reply{{200, "The planes.", model.Steps{}, ""}},
		codes:   []Code{CodeNotFound, CodeTooLarge, CodeUnavailable},
	},
	{
		name: "compareWindows", tag: tagWindows,
		method: "GET", path: "/v1/compare", handle: (*Server).compare, role: config.RoleRead,
		summary: "The planes of two windows beside each other",
		notes: "The angle between the normals, and the squared loss and the correctness of each plane on the rows of either window, from exact sums. Sums do not count the rows that are right. The bounds of the correctness always hold; its estimate assumes that the values of the plane are normally distributed in each class. With more than two classes it is that of each plane alone, one class against the rest. " +
			"A window is written FROM,TO: two times, one of which may be empty, or ranges of offsets with commas between them.",
		query:   []described{compareA, compareB, compareNu},
		replies: []reply{{200, "The comparison.", model.Comparison{}, ""}},
		codes:   []Code{CodeNotFound, CodeUnavailable},
	},
	{
		name: "getEvents", tag: tagStatus,
		method: "GET", path: "/v1/events", handle: (*Server).events, role: config.RoleRead, follows: true,
		summary: "Events as they happen",
		notes: fmt.Sprintf("Server-sent events of the types `alarm`, `retirement`, `receipt`, `partitions`, `epoch` and `problem`. The `data` of each is an Event. The last 1000 are kept, and come first. They name no block, key or label, and are not saved. "+
			"In place of events that a slow client has missed there is one of the type `missed` with their number, without an id. "+
			"A comment comes every %.0f seconds. The stream ends after %.0f minutes, and when the daemon stops. A browser's EventSource sends no token, but a script that reads the answer of fetch can.", heartbeat.Seconds(), longestStream.Minutes()),
		query:   []described{eventsFollow},
		replies: []reply{{200, "The stream.", Event{}, "text/event-stream"}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "getLabelRequests", tag: tagModel,
		method: "GET", path: "/v1/label-requests", handle: (*Server).labelRequests, role: config.RoleRead,
		summary: "Rows to label next",
		notes: "The live rows of the sample, with and without labels, are clustered about k medians of their features, each in units of its standard deviation. Of the rows nearest to the centres, those without a label are named. " +
			"The answer is a function of the live rows. Send a label with a new value of the block's key, or in a block that replaces the retired one. It takes a minute at most.",
		query:   []described{requestsCount},
		replies: []reply{{200, "The rows.", LabelRequestsAnswer{}, ""}},
		codes:   []Code{CodeConflict, CodeUnavailable},
	},
	{
		name: "getEpoch", tag: tagBasis,
		method: "GET", path: "/v1/epoch", handle: (*Server).epoch, role: config.RoleRead,
		summary: "The basis of a kernel and the next one",
		replies: []reply{{200, "The coordinates that live blocks are summed in, and the progress of the next ones.", EpochAnswer{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "getRegions", tag: tagModel,
		method: "GET", path: "/v1/regions", handle: (*Server).regions, role: config.RoleRead,
		summary: "A picture of the class regions of a kernel classifier of two features",
		query:   []described{regionsModel, regionsNarrow}, tagged: true,
		replies: []reply{{200, "The picture.", nil, "image/svg+xml"}},
		codes:   []Code{CodeNotFound, CodeNoModel, CodeUnavailable},
	},
	{
		name: "reduceBasis", tag: tagBasis,
		method: "POST", path: "/v1/reduce", handle: (*Server).reduce, role: config.RoleAdmin,
		summary: "Choose a basis now, or a part of the one in use",
		notes: "In the background, a basis is chosen from the live rows, and live blocks are mapped to its coordinates. `GET /v1/epoch` has the progress. `served` in the answer changes once planes are served in the coordinates of the new basis. " +
			"With `prune` and `basis` it is a part of the basis in use. Its sums are taken from those that there are, and are, bit for bit, those of a daemon that began with the part. Another reduction, also one after a retirement, chooses a basis of kernel.basis from rows again.",
		query:   []described{pruneQuery, basisQuery},
		replies: []reply{{202, "It has begun.", EpochAnswer{}, ""}},
		codes:   []Code{CodeConflict, CodeUnavailable},
	},
	{
		name: "abandonReduction", tag: tagBasis,
		method: "DELETE", path: "/v1/reduce", handle: (*Server).abandon, role: config.RoleAdmin,
		summary: "Give up the basis that is under way",
		notes:   "The basis in use stays in use. If none is under way, nothing happens.",
		replies: []reply{{200, "The reduction or rebuild was asked to end. `reducing` stays until a reduction has ended.", EpochAnswer{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "getStatus", tag: tagStatus,
		method: "GET", path: "/v1/status", handle: (*Server).status, role: config.RoleRead,
		summary: "Problems, and what became of records and rows",
		notes: "Records and rows are counted apart, since nobody knows the rows of a record that cannot be decoded. " +
			"A problem without `last` holds now. One with `last` has happened, and stays until it has passed or somebody has seen it: `POST /v1/status/seen`.",
		replies: []reply{{200, "The status.", StatusAnswer{}, ""}},
	},
	{
		name: "markProblemsSeen", tag: tagStatus,
		method: "POST", path: "/v1/status/seen", handle: (*Server).seen, role: config.RoleAdmin,
		summary: "Say that the problems have been seen",
		notes:   "Problems with `last` go, until they happen once more. Those that hold stay. The next save has it.",
		query:   []described{seenUntil},
		replies: []reply{{200, "The status without them.", StatusAnswer{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "listBlocks", tag: tagBlocks,
		method: "GET", path: "/v1/blocks", handle: (*Server).blocks, role: config.RoleRead,
		summary: "The live or the archived blocks, page by page",
		query:   []described{blocksAfter, blocksLimit, blocksArchived},
		replies: []reply{{200, "A page.", BlocksAnswer{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "retireBlock", tag: tagBlocks,
		method: "DELETE", path: "/v1/blocks/{id}", handle: (*Server).retire, role: config.RoleRetire,
		summary:  "Retire a block",
		notes:    "With the answer, the block is out of the state durably. The model follows. " + retireNotes,
		query:    []described{hereQuery},
		meanings: []string{"The block's id, as `GET /v1/blocks` gives it. It may be written as it is, slashes included, or percent-encoded; a ?, # or % in it must be encoded."},
		replies:  []reply{{200, "The receipt.", Retirement{}, ""}},
		codes:    []Code{CodeNotFound, CodeUnavailable},
	},
	{
		name: "retireBlocks", tag: tagBlocks,
		method: "POST", path: "/v1/retire", handle: (*Server).retireChosen, role: config.RoleRetire,
		summary: "Retire blocks by id, key, position or event time",
		notes: "All chosen blocks are retired in one transaction, or none. With the answer, they are out of the state durably. The model follows. " +
			"Blocks that come later are not affected. With `dry_run=true` the answer says which blocks would go. " + retireNotes,
		query: []described{dryRunQuery, hereQuery}, chooses: true,
		replies: []reply{{200, "The receipt, or the forecast of a dry run.", Retirement{}, ""}},
		codes:   []Code{CodeNotFound, CodeTooLarge, CodeUnsupportedMediaType, CodeUnavailable},
	},
	{
		name: "getReceiptProof", tag: tagReceipts,
		method: "GET", path: "/v1/receipts/proof/{leaf}", handle: (*Server).proof, role: config.RoleRead,
		summary:  "The proof of a receipt",
		notes:    "A file that `streamd receipts verify` checks offline, with the public key of the log. It has no id, key or label.",
		meanings: []string{"The receipt's number in the log, as the answer to the retirement has it."},
		replies:  []reply{{200, "The proof, in the form c2sp.org/tlog-proof@v1. Its extra data is the receipt.", nil, "text/plain"}},
		codes:    []Code{CodeNotFound},
	},
	{
		name: "getReceiptCheckpoint", tag: tagReceipts,
		method: "GET", path: "/v1/receipts/checkpoint", handle: (*Server).checkpoint, role: config.RoleRead,
		summary: "The signed tree head of the log of receipts",
		notes:   "`/v1/receipts` is the prefix of a log in the form c2sp.org/tlog-tiles.",
		replies: []reply{{200, "The checkpoint.", nil, "text/plain"}},
		codes:   []Code{CodeNotFound},
	},
	{
		name: "getReceiptTile", tag: tagReceipts,
		method: "GET", path: "/v1/receipts/tile/{tile...}", handle: (*Server).tile, role: config.RoleRead,
		summary:  "Hashes and leaves of the log of receipts",
		notes:    "With these an auditor can follow the log, and prove that a later checkpoint continues an earlier one.",
		meanings: []string{"Level and number of a tile of hashes, or `entries` and the number of a bundle of leaves, as c2sp.org/tlog-tiles has them: `0/000.p/7`."},
		replies:  []reply{{200, "The tile, or the bundle.", nil, "application/octet-stream"}},
		codes:    []Code{CodeNotFound},
	},
	{
		name: "copySnapshot", tag: tagSnapshot,
		method: "GET", path: "/v1/snapshot", handle: (*Server).copySnapshot, role: config.RoleAdmin,
		summary: "A copy of the snapshot",
		notes: "The state is saved, and the copy has it and nothing else: no retired block is left in a free page. It is a backup, and what `streamd run --from` begins a replica with. " +
			"One key signs one log of receipts, so a replica takes a copy without them (`receipts=false`) and begins its own. A copy of a snapshot under a key (`snapshot.key_file`) is under the same one.",
		query:   []described{copyReceipts},
		replies: []reply{{200, "The file.", nil, "application/octet-stream"}},
		codes:   []Code{CodeConflict, CodeUnavailable},
	},
	{
		name: "saveSnapshot", tag: tagSnapshot,
		method: "POST", path: "/v1/snapshot", handle: (*Server).snapshot, role: config.RoleAdmin,
		summary: "Save the state now",
		query:   []described{compactQuery},
		replies: []reply{{200, "The state is saved durably.", SnapshotInfo{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "refineModel", tag: tagModel,
		method: "POST", path: "/v1/refine", handle: (*Server).refine, role: config.RoleAdmin,
		summary: "Refine the planes now",
		notes:   "At most one refinement is under way at a time.",
		query:   []described{refineWait},
		replies: []reply{
			{200, "The refined model is served.", RefineAnswer{}, ""},
			{202, "The refinement goes on. The model will have the report.", RefineAnswer{}, ""},
		},
		codes: []Code{CodeConflict, CodeNoModel, CodeUnavailable},
	},
	{
		name: "learnLists", tag: tagModel,
		method: "POST", path: "/v1/features/learn", handle: (*Server).learnLists, role: config.RoleAdmin,
		summary: "Learn the lists of values of categories now",
		notes: "The rows of the live blocks are read from the log again, and the values of each category of `format.schema` with `values: {most: K}` are counted exactly. The K most frequent ones are its list; of two with as many rows the one that sorts first is taken. " +
			"The lists depend on the live rows alone: they are the same in every replica that has the same blocks. Blocks that leave meanwhile do not count. The answer comes when the lists are saved. Then the features change, as after a change of the configuration: live blocks are read again, and the former model is served until all have been.",
		replies: []reply{{200, "The lists.", LearnedLists{}, ""}},
		codes:   []Code{CodeConflict, CodeUnavailable},
	},
	{
		name: "getServerMetadata", tag: tagProtocol,
		method: "GET", path: "/v2", handle: (*Server).serverMetadata, role: config.RolePredict,
		summary: "The server in the protocol",
		replies: []reply{{200, "The server.", ServerMetadata{}, ""}},
	},
	{
		name: "getServerLive", tag: tagProtocol,
		method: "GET", path: "/v2/health/live", handle: (*Server).serverLive,
		summary: "Whether the process answers",
		replies: []reply{{200, "It does.", ServerHealth{}, ""}},
	},
	{
		name: "getServerReady", tag: tagProtocol,
		method: "GET", path: "/v2/health/ready", handle: (*Server).serverReady,
		summary: "Whether this instance can answer",
		notes:   "As `GET /readyz`.",
		replies: []reply{{200, "It is.", ServerHealth{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "getModelMetadata", tag: tagProtocol,
		method: "GET", path: "/v2/models/{name}", handle: (*Server).modelMetadata, role: config.RolePredict,
		summary:  "The inputs and outputs of the model",
		meanings: []string{modelMeaning},
		replies:  []reply{{200, "The model.", ModelMetadata{}, ""}},
		codes:    []Code{CodeNotFound, CodeNoModel},
	},
	{
		name: "getModelVersionMetadata", tag: tagProtocol,
		method: "GET", path: "/v2/models/{name}/versions/{version}", handle: (*Server).modelMetadata, role: config.RolePredict,
		summary:  "The inputs and outputs of a version",
		meanings: []string{modelMeaning, versionMeaning},
		replies:  []reply{{200, "The model.", ModelMetadata{}, ""}},
		codes:    []Code{CodeNotFound, CodeNoModel},
	},
	{
		name: "getModelReady", tag: tagProtocol,
		method: "GET", path: "/v2/models/{name}/ready", handle: (*Server).modelReady, role: config.RolePredict,
		summary:  "Whether the model can answer",
		meanings: []string{modelMeaning},
		replies:  []reply{{200, "It can.", ModelHealth{}, ""}},
		codes:    []Code{CodeNotFound, CodeNoModel, CodeUnavailable},
	},
	{
		name: "getModelVersionReady", tag: tagProtocol,
		method: "GET", path: "/v2/models/{name}/versions/{version}/ready", handle: (*Server).modelReady, role: config.RolePredict,
		summary:  "Whether a version can answer",
		meanings: []string{modelMeaning, versionMeaning},
		replies:  []reply{{200, "It can.", ModelHealth{}, ""}},
		codes:    []Code{CodeNotFound, CodeNoModel, CodeUnavailable},
	},
	{
		name: "infer", tag: tagProtocol,
		method: "POST", path: "/v2/models/{name}/infer", handle: (*Server).infer, role: config.RolePredict,
		summary:  "Predictions for tensors",
		notes:    inferNotes,
		meanings: []string{modelMeaning},
		infers:   true, named: true,
		replies: []reply{
			{200, "The predictions. ", InferAnswer{}, ""},
			{200, "With elements as bytes it is JSON and then these; the header Inference-Header-Content-Length has the length of the JSON.", nil, binaryType},
		},
		codes: []Code{CodeNotFound, CodeTooLarge, CodeUnsupportedMediaType, CodeNoModel, CodeUnavailable},
	},
	{
		name: "inferVersion", tag: tagProtocol,
		method: "POST", path: "/v2/models/{name}/versions/{version}/infer", handle: (*Server).infer, role: config.RolePredict,
		summary:  "Predictions of a version for tensors",
		notes:    "As `POST /v2/models/{name}/infer`, of one version of the model.",
		meanings: []string{modelMeaning, versionMeaning},
		infers:   true, named: true,
		replies: []reply{
			{200, "The predictions. ", InferAnswer{}, ""},
			{200, "With elements as bytes it is JSON and then these; the header Inference-Header-Content-Length has the length of the JSON.", nil, binaryType},
		},
		codes: []Code{CodeNotFound, CodeTooLarge, CodeUnsupportedMediaType, CodeNoModel, CodeUnavailable},
	},
	{
		name: "getDocument", tag: tagStatus,
		method: "GET", path: "/v1/openapi.json", handle: (*Server).describe,
		summary: "This description", tagged: true,
		replies: []reply{{200, "An OpenAPI 3.1 document.", map[string]any{}, ""}},
	},
	{
		name: "getHealth", tag: tagStatus,
		method: "GET", path: "/healthz", handle: (*Server).healthz,
		summary: "Whether the process answers",
		replies: []reply{{200, "It does.", Health{}, ""}},
	},
	{
		name: "getReadiness", tag: tagStatus,
		method: "GET", path: "/readyz", handle: (*Server).readyz,
		summary: "Whether this instance can answer",
		notes:   "It is not ready without a model or a partition, while the state cannot be saved, and after the start until no more than http.ready_lag records are left to read. The message has the reason.",
		replies: []reply{{200, "It is.", Health{}, ""}},
		codes:   []Code{CodeUnavailable},
	},
	{
		name: "getMetrics", tag: tagStatus,
		method: "GET", path: "/metrics", handle: (*Server).scrape, role: config.RoleRead,
		summary: "Metrics for Prometheus",
		replies: []reply{{200, "The metrics, in the format of Accept, else as text.", nil, "text/plain"}},
	},
	{
		name: "getPage", tag: tagPage,
		method: "GET", path: "/{$}", handle: (*Server).page, role: config.RoleRead, signsIn: true,
		summary: "The status page",
		notes:   "A view for each subject. Its links and its reload need no script.",
		query:   pageQuery,
		replies: []reply{
			{200, "The page.", nil, "text/html"},
			{401, "A page that asks for a token.", nil, "text/html"},
		},
	},
	{
		name: "getAsset", tag: tagPage,
		method: "GET", path: "/assets/{name}", handle: (*Server).asset,
		summary:  "Files of the status page",
		meanings: []string{"The file's name."}, tagged: true,
		replies: []reply{{200, "The file.", nil, "text/css"}, {200, "", nil, "text/javascript"}, {200, "", nil, "image/svg+xml"}, {200, "", nil, "text/plain"}},
		codes:   []Code{CodeNotFound},
	},
}

// takesBody says whether the route has a body. For any other, one is an error.
func (r *route) takesBody() bool { return r.rows || r.chooses || r.infers }

// call answers r by its route.
func (s *Server) call(route *route, w http.ResponseWriter, r *http.Request) error {
	if route.role != "" {
		err := s.authorise(r, route.role)
		if failed, ok := errors.AsType[*failure](err); ok && route.signsIn && s.config.Access.TakesTokens() {
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
	if !route.takesBody() {
		if err := noBody(r); err != nil {
			return err
		}
	}
	return route.handle(s, w, r)
}

// noBody refuses a body that would be ignored, whatever it asks for.
func noBody(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if n, _ := io.ReadFull(r.Body, make([]byte, 1)); n > 0 {
		return fail(CodeBadRequest, "this call takes no body: what can be asked for is in the query")
	}
	return nil
}

// The document is generated from the table of routes and the types of the answers with
// their comments. A test compares them.
//
//go:generate go test -count=1 -run ^TestDocument$ . -update
//go:embed openapi.json
var document []byte

var documentTag = tagOf(document)

func (s *Server) describe(w http.ResponseWriter, r *http.Request) error {
	if !hasBytes(w, r, documentTag) {
		writeJSON(w, http.StatusOK, document)
	}
	return nil
}
