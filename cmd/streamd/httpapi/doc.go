// Package httpapi is streamd's HTTP side: the model, predictions, the ledger
// and the admin calls as JSON, the metrics, and a status page.
//
//	GET    /v1/model           the served model                    [ModelAnswer]
//	POST   /v1/predict         rows in, labels and values out      [PredictAnswer]
//	GET    /v1/tuning          how ν was chosen                    [Tuning]
//	GET    /v1/quality         how far answers can be trusted      [Quality]
//	GET    /v1/epoch           the basis of a kernel, and the next [EpochAnswer]
//	GET    /v1/regions         where a kernel classifier of two features puts its classes, as SVG
//	POST   /v1/reduce          choose a basis now (admin)          [EpochAnswer]
//	DELETE /v1/reduce          give up what is under way (admin)   [EpochAnswer]
//	GET    /v1/blocks          the live blocks, page by page       [BlocksAnswer]
//	DELETE /v1/blocks/{id}     retire a block (retire)             [Receipt]
//	POST   /v1/snapshot        save the state now, ?compact=true: and compact the file (admin) [SnapshotInfo]
//	POST   /v1/refine          refine the planes now (admin)       [RefineAnswer]
//	GET    /v1/openapi.json    all of this as an OpenAPI 3.1 document
//	GET    /healthz            200 while the process answers
//	GET    /readyz             200 when this instance can answer, else 503 with the reasons
//	GET    /metrics            Prometheus
//	GET    /                   the status page
//
// The routes are one table, of which the mux and the document are made: what a
// call takes, its answers, and its errors. The document has the answers' types
// with their comments. It is generated; a test holds it to the table and the
// types, and to what is really answered.
//
// # The model
//
// The answer's fingerprint is its strong ETag: equal fingerprints are equal
// bytes. If-None-Match (one tag, a list or *) gives 304 when the client has the
// model already; so it does for what else goes with the model, /v1/tuning,
// /v1/quality and /v1/regions. With ?wait=30s (a Go duration, at most [MaxWait]) the answer
// waits for a model that If-None-Match does not name: it comes at once when
// there is one, and otherwise when the model changes or goes away; 304 at the
// end of the wait and when the server stops. While there is no model the answer
// is 503 no_model with the reason. Numbers are written with the fewest digits
// that read back as the same float64, so w and γ survive JSON bit for bit.
//
// # Predictions
//
// The body is rows in any format of package wire, named by Content-Type; labels
// and weights are ignored where there are any. At most [MaxBodyBytes] and
// [MaxRows]. A body is answered as a whole or not at all, by one model, whose
// fingerprint the answer names:
//
//	{"model":"…","method":"psvm","classes":["ham","spam"],"planes":["spam"],
//	 "labels":["spam","ham"],"values":[[0.5],[-2.5]],
//	 "calibration":"platt","probabilities":[[0.27,0.73],[0.99,0.01]]}
//
// where labels[i], values[i] and probabilities[i] belong to row i: values[i][p]
// is its x'w − γ for planes[p], and probabilities[i][c] the probability that it
// is of classes[c], if the model has a calibration. The label is that of the
// values, and need not be the most probable class.
//
// With ?contributions=true the answer says what each feature adds to each
// value, by the features' names, counted from the mean row:
//
//	"contributions":{"at_mean":[0.1],"rows":[[{"len":1.5,"caps":-1.1}],…]}
//
// and with &top=N only the N largest, largest first. With ?leverage=true it
// says how far each row is from those learned from ([LeverageAnswer]); 503
// unavailable where the daemon cannot. An answer has at most 4,194,304 numbers,
// and leverages take at most 2^33 multiplications, else it is 413 too_large.
//
// # How the planes came about
//
// The model's method is psvm for planes read off the summed state, else that of
// its refinement. POST /v1/refine begins one and waits for its end, a minute or
// what ?wait= says (at most [MaxWait]): 200 with the report once the refined
// model is served, 202 when it still goes on, which it does then (the model has
// the report in the end), 409 conflict, and nothing is begun, while another one
// is under way or where model.refine is none, and 503 unavailable with the reason
// when it fails. /v1/tuning and /v1/quality are 404 not_found, with the reason,
// when the model was made without.
//
// # Kernels
//
// The planes of a model with a basis are in the coordinates K(x, Z) of its points:
// w has one number per point, mean is that of the coordinates, and there are no
// contributions of features. Rows come and are answered with features as ever.
// POST /v1/reduce begins to choose another basis from the live rows: 202 with what
// GET /v1/epoch answers, which says how far it is; 409 conflict while one is chosen
// or live blocks are being put into its coordinates, which DELETE /v1/reduce ends,
// or where kernel.function is none; 503 unavailable while the sample has no rows,
// or not all of them. served in the answer changes, with the model, once planes are
// served in the coordinates of the new basis.
//
// # Block ids
//
// An id is opaque. In a path it may be written as it is, slashes included, or
// percent-encoded; a ?, # or % in it must be encoded.
//
// # Errors
//
// Every error is {"error":{"code":"…","message":"…"}} with one of the codes of
// [Code]. What goes wrong inside is logged and answered as internal, without
// its cause.
//
// Nothing that is asked for is ignored: a query parameter that the call does not
// know, that is given twice or is malformed is 400 bad_request, with the names of
// those that it knows, and so is a body where none is taken.
//
// # Compression
//
// Rows may come with Content-Encoding: gzip; the bounds hold before and after. An
// answer of some size is compressed for a client whose Accept-Encoding has gzip,
// and its ETag ends in -gzip. If-None-Match may name either of the two tags.
//
// # Who may do what
//
// Package access says who a caller is: a token, a client certificate, or nobody in
// particular. Each route of the table wants one role, or none; who lacks it gets
// 401 unauthorized where a token can help, else 403 forbidden. In place of the
// status page they get one that asks for a token.
//
// A request is for a host by the name that the daemon goes by, else it is 403.
// Pages of other origins than the listed ones can change nothing and read no
// answer, token or not. Without a token no page can change anything. Listed ones
// get the headers of CORS, and answers to their preflight requests.
//
// Answers 401 and 403 are logged, a few lines a second at most. A retirement is logged
// with the caller's name.
//
// # Times
//
// A request has [ReadTimeout] to arrive and [WriteTimeout] to be answered; a
// poll has its wait on top of that, an admin call [MaxWait]. A prediction holds
// a slot until it is made, not until it is read. All of them share [Memory] bytes:
// one that gets none of it for five seconds is answered 503 unavailable.
package httpapi
