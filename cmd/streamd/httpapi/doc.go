// Package httpapi is streamd's HTTP side. It renders the served model, predictions, the
// ledger and the admin calls as JSON, the metrics as text, and the page of the views.
//
//	GET    /v1/model           the served model, or that of a window [ModelAnswer]
//	POST   /v1/predict         labels and values of rows           [predictions.PredictAnswer]
//	GET    /v1/tuning          how ν was chosen                    [model.Tuning]
//	GET    /v1/quality         how good the answers are            [model.Quality]
//	GET    /v1/prequential     answers for arriving rows, and drift [model.Prequential]
//	GET    /v1/events          events as they happen               [Event]
//	GET    /v1/history         some figures over time             [model.History]
//	GET    /v1/windows         the planes of successive windows   [model.Steps]
//	GET    /v1/compare         the planes of two windows           [model.Comparison]
//	GET    /v1/label-requests  rows to label next                  [LabelRequestsAnswer]
//	GET    /v1/status          is it learning, right, behind; problems, counts [StatusAnswer]
//	POST   /v1/status/seen     say that the problems have been seen [StatusAnswer]
//	GET    /v1/epoch           the basis of a kernel and the next  [EpochAnswer]
//	GET    /v1/regions         class regions of a kernel classifier of two features, as SVG
//	POST   /v1/reduce          choose or prune a basis (admin)     [EpochAnswer]
//	DELETE /v1/reduce          give up a basis under way (admin)   [EpochAnswer]
//	GET    /v1/blocks          the live blocks, page by page       [BlocksAnswer]
//	DELETE /v1/blocks/{id}     retire a block (retire)             [Receipt]
//	GET    /v1/receipts/proof/{leaf} the proof of a receipt        c2sp.org/tlog-proof@v1
//	GET    /v1/receipts/checkpoint   the signed head of their log  c2sp.org/tlog-checkpoint
//	GET    /v1/receipts/tile/{tile}  its hashes and leaves         c2sp.org/tlog-tiles
//	POST   /v1/retire          retire blocks by id, key, position or event time; ?dry_run=true says which (retire) [Retirement]
//	GET    /v1/snapshot        a copy of the snapshot; ?receipts=false leaves out their log (admin)
//	POST   /v1/snapshot        save the state now; ?compact=true also compacts the file (admin) [SnapshotInfo]
//	POST   /v1/refine          refine the planes now (admin)       [RefineAnswer]
//	POST   /v1/features/learn  learn the lists of values of categories (admin) [LearnedLists]
//	GET    /v1/openapi.json    this API as an OpenAPI 3.1 document
//	GET    /v2                 the server in the Open Inference Protocol [ServerMetadata]
//	GET    /v2/health/live     200 while the process answers     [ServerHealth]
//	GET    /v2/health/ready    as /readyz                        [ServerHealth]
//	GET    /v2/models/{name}   inputs and outputs                [ModelMetadata]
//	GET    /v2/models/{name}/ready whether the model can answer  [ModelHealth]
//	POST   /v2/models/{name}/infer predictions for tensors       [InferRequest] [InferAnswer]
//	GET    /healthz            200 while the process answers
//	GET    /readyz             200 when this instance can answer, else 503 with the reasons
//	GET    /metrics            Prometheus
//	GET    /                   the page: views of overview, model, quality, stream, blocks, past and receipts
//
// One table has the routes: parameters, answers and errors. The mux and the document are
// both made from it. The document also has the types of the answers with their comments.
// A test compares the document with the table, the types and real answers.
//
// # The model
//
// The answer's fingerprint is its ETag. It is a function of the sums, the settings and the planes
// ([model.Identity.Fingerprint]), so every daemon that serves the same model has the same tag. The
// tag is weak: made_at, offsets and reports in the answer can be others.
// If-None-Match (a tag, a list or *) gives 304 when the client has the model already, also
// for /v1/regions. /v1/tuning and /v1/quality have tags of their own bytes. With ?wait=30s (a Go
// duration, at most [MaxWait]) the answer waits for a model that If-None-Match does not name. It
// comes at once when there is one, and else when the model changes or goes away. At the end of the
// wait, and when the server stops, it is 304. Without a model it is 503 no_model with the reason.
// durable says whether the blocks of the model are saved: it is served before that, and a client
// that has it is not told when they are. With ?includes=, positions of records, the model is of a
// state that has read them, or it is 504 not_yet, for POST /v1/predict, too. At most [PollRate]
// polls with a wait are answered in a second, in the order in which they came, and each with the
// model of its moment: many clients that poll get fewer models each, and cost no more. Numbers have
// the fewest digits that read back to the same float64, so w and γ survive JSON bit for bit.
//
// # Windows
//
// With ?from= and ?to=, times of RFC 3339, or ?positions=, ranges as in a [retire.Selector], GET
// /v1/model and POST /v1/predict are of the model of a window: of the live blocks that these
// choose. It has the bits of the model of a daemon that has these blocks alone, with the same
// ν, or ?nu=, and the same scaling. It is a function of the blocks, so it has no time and no
// offsets, and keeps its fingerprint while other blocks come and go. window in the answer says
// what it lacks: it is read off sums, and refinement, calibration and measured quality take
// rows. A window without blocks, or with rows of one class, is 404 not_found with the reason.
//
// The first window takes an index of all live blocks, which stays until nobody has asked for
// ten minutes. One window is summed at a time; another waits for five seconds and is then 503
// unavailable. So is one that takes more than a minute or more than limits.memory leaves; what
// has been summed stays, so the next call gets further.
//
// # Predictions
//
// The body is rows in any format of package wire, named by Content-Type. Without one, and
// with the form type that curl sends by default, [wire.Sniff] tells the format by the first
// bytes. Labels and weights in the rows are ignored. A body has at most [MaxBodyBytes] and
// [MaxRows]. One model answers the whole body, or the call fails. The answer names the model's
// fingerprint:
//
//	{"model":"…","method":"psvm","classes":["ham","spam"],"planes":["spam"],
//	 "decision":"probability","labels":["spam","ham"],"values":[[0.99],[-4.6]],
//	 "calibration":"platt","probabilities":[[0.27,0.73],[0.99,0.01]]}
//
// Entry i of labels, values and probabilities belongs to row i: values[i][p] is that of
// planes[p], and probabilities[i][c] is the probability of classes[c].
//
// One rule decides the label, and values and probabilities are those of the rule, so that
// they never contradict it ([model.DecisionJSON], package decision). A single plane's class
// is the label where the value is zero or more, else the label has the largest value. By
// probability the label also has the largest probability, and a value is the log odds of its
// plane's class. By cost the label has the least expected cost under the probabilities. By
// value the values are x'w − γ, and there are no probabilities, which could contradict.
// /v1/model has all that it takes to label rows as the daemon does, w·x − γ first.
//
// With ?form=rows each row is an object with the names of the classes
// ([predictions.PredictRowsAnswer]):
//
//	{"model":"…","method":"psvm","decision":"probability","calibration":"platt","rows":[
//	 {"label":"spam","values":{"spam":0.99},"probabilities":{"ham":0.27,"spam":0.73}},…]}
//
// With Accept: text/csv or application/vnd.apache.arrow.stream the answer is a table: see
// package predictions for its columns. The header Streamd-Model names the model in every
// form. Accept without any of the three types is 406 not_acceptable.
//
// With ?contributions=true the answer has the contribution of each feature to x'w − γ of
// each plane, by name and counted from the mean row:
//
//	"contributions":{"at_mean":[0.1],"rows":[[{"len":1.5,"caps":-1.1}],…]}
//
// With &top=N it has only the N largest, largest first. With ?leverage=true it has the
// leverage of each row ([predictions.LeverageAnswer]), or 503 unavailable where the daemon cannot
// compute it. Both come as JSON alone. An answer has at most 4,194,304 numbers, and leverages take
// at most 2^33 multiplications; beyond that it is 413 too_large.
//
// # The Open Inference Protocol
//
// The calls below /v2 are those of the protocol's second version over REST, with its extension of
// binary tensors. An inference is POST /v1/predict: the tensors become rows of JSON, which the same
// code reads, bounds, predicts and remembers, and the columns of the answer become tensors. The
// name of the model is [Config.Name], and its version the fingerprint. A version that is not served
// is 404: no daemon keeps an older model. Each of the calls for a model has a second path with
// /versions/{version} before its last part.
//
//	{"inputs":[{"name":"len","shape":[2],"datatype":"FP64","data":[1.5,0]},
//	           {"name":"caps","shape":[2,1],"datatype":"INT64","data":[[3],[17]]}]}
//	{"model_name":"default","model_version":"…","parameters":{"decision":"value","method":"psvm"},
//	 "outputs":[{"name":"label","datatype":"BYTES","shape":[2],"data":["ham","spam"]},
//	            {"name":"values","datatype":"FP64","shape":[2,1],"parameters":{"planes":"[\"spam\"]"},
//	             "data":[-4.6,0.99]}]}
//
// The metadata names an input for each column of a row; one input [rows, features] with the numbers
// of all features is taken as well. The rows of a request take at most four times [MaxBodyBytes] as
// text. Errors below /v2 are {"error":"…"}, with the statuses of the other calls.
//
// # Method, refinement, tuning and quality
//
// The model's method is psvm for planes read off the summed state, else that of its
// refinement. POST /v1/refine begins a refinement and waits for its end, a minute or
// ?wait= (at most [MaxWait]). It answers 200 with the report once the refined model is
// served, and 202 when the refinement goes on; the model has the report in the end. It is
// 409 conflict while another refinement is under way or where model.refine is none, and
// begins nothing then. It is 503 unavailable with the reason when the refinement fails.
// /v1/tuning and /v1/quality are 404 not_found with the reason for a model without them.
//
// # Kernels
//
// The planes of a model with a basis are in the coordinates K(x, Z) of its points: w has
// one number per point, mean is the mean of the coordinates, and features have no
// contributions. Rows still come with features. POST /v1/reduce begins to choose another
// basis from the live rows. It answers 202 with the body of GET /v1/epoch, which has the
// progress. It is 409 conflict while a basis is being chosen, while live blocks are mapped
// to its coordinates, and where kernel.function is none. DELETE /v1/reduce ends both. It is
// 503 unavailable while the sample has no rows, or not all of them. served in the answer
// changes, with the model, once planes are served in the coordinates of the new basis.
// ?prune=lda&basis=20 chooses 20 coordinates of the basis in use instead. That takes neither
// the sample nor the log, is 409 conflict for a basis that has no such part, and 503
// unavailable before there is a basis.
//
// # Block ids
//
// An id is opaque. In a path it may be written as it is, slashes included, or
// percent-encoded; a ?, # or % in it must be encoded.
//
// # Retiring
//
// The body of POST /v1/retire is a [retire.Selector] in JSON, at most [MaxBodyBytes]. Its ids and
// keys name blocks; without them it chooses among all blocks: live, archived, and withdrawn by the
// control topic. Headers, positions and times narrow the choice. An empty or unknown part is 400
// bad_request, so that a mistake does not widen it. A selector that chooses no live block is 404
// not_found, as a block that is not live. Where it names some blocks that are not live, the others
// are retired, and the answer counts the former. DELETE /v1/blocks/{id} is the same for one block.
//
// # Errors
//
// Every error but those below /v2 is {"error":{"code":"…","message":"…"}} with one of the codes of
// [Code]. An internal error is logged and answered as internal, without its cause.
//
// No part of a request is ignored. A query parameter that is unknown, repeated or
// malformed is 400 bad_request with the names of the known ones. So is a body where none
// is taken.
//
// # Compression
//
// Rows may come with Content-Encoding: gzip; the limits hold before and after. A long
// answer is compressed for a client whose Accept-Encoding has gzip, and its strong ETag ends in
// -gzip. If-None-Match may name either tag.
//
// # Access
//
// Package access identifies the caller by a token or a client certificate, or as nobody in
// particular. A route wants one role, or none. A caller without it gets 401 unauthorized
// where a token can help, else 403 forbidden; in place of the status page it gets a page
// that asks for a token.
//
// A request for a host name that is not the daemon's is 403. A page of an origin that is
// not listed can change nothing and read no answer, with or without a token. Without a
// token no page can change anything. Pages of listed origins get the headers of CORS and
// answers to their preflight requests.
//
// Answers 401 and 403 are logged, a few lines a second at most. A retirement is logged with
// the caller's name.
//
// # Times and memory
//
// A request has [ReadTimeout] to arrive and [WriteTimeout] to be answered. A poll has its
// wait on top, and an admin call [MaxWait]. A prediction holds a slot until it is computed,
// not until it is read. All predictions share [Memory] bytes: one that gets none of it
// for five seconds is answered 503 unavailable.
package httpapi
