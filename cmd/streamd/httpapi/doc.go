// Package httpapi is streamd's HTTP side: the model, predictions, the ledger
// and the admin calls as JSON, the metrics, and a status page.
//
//	GET    /v1/model           the served model                    [ModelAnswer]
//	POST   /v1/predict         rows in, labels and values out      [PredictAnswer]
//	GET    /v1/blocks          the live blocks, page by page       [BlocksAnswer]
//	DELETE /v1/blocks/{id}     retire a block (admin)              [Receipt]
//	POST   /v1/snapshot        save the state now (admin)          [SnapshotInfo]
//	GET    /healthz            200 while the process answers
//	GET    /readyz             200 when the service is ready, else 503
//	GET    /metrics            Prometheus
//	GET    /                   the status page
//
// # The model
//
// The answer's fingerprint is its strong ETag: equal fingerprints are equal
// bytes. If-None-Match (one tag, a list or *) gives 304 when the client has the
// model already. With ?wait=30s (a Go duration, at most [MaxWait]) the answer
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
//	{"model":"…","classes":["ham","spam"],"planes":["spam"],
//	 "labels":["spam","ham"],"values":[[0.5],[-2.5]]}
//
// where labels[i] and values[i] belong to row i, and values[i][p] is its
// x'w − γ for planes[p].
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
// # Who may do what
//
// Reading and predicting are open to whoever reaches the address. The admin
// calls want "Authorization: Bearer TOKEN" when a token is configured and are
// open otherwise. Requests that change something and come from a page of
// another origin are refused, token or not.
//
// # Times
//
// A request has [ReadTimeout] to arrive and [WriteTimeout] to be answered; a
// poll has its wait on top of that, an admin call [MaxWait].
package httpapi
