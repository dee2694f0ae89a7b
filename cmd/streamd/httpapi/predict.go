package httpapi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/ingest/wire"
)

// Limits of one answer. An answer has at most maxNumbers values, probabilities,
// contributions and leverages together. A leverage takes n² multiplications per row and
// matrix; maxLeverageWork bounds them to seconds.
const (
	maxNumbers            = 4 << 20
	maxLeverageWork int64 = 1 << 33
)

// shortBody is the part of a body that takes no share of the memory.
const shortBody = 64 << 10

var (
	contributionsQuery = &parameter[bool]{
		name: "contributions", kind: trueOrFalse,
		meaning: "Whether to show the contribution of each feature to each plane's x'w − γ. A model with a basis has none.",
	}
	topQuery = &parameter[int]{
		name: "top", kind: wholeNumber,
		meaning: "With `contributions=true`: the number of contributions to show for each row and plane, largest first. The default is all.",
	}
	formQuery = &parameter[string]{
		name: "form", kind: columnsOrRows, otherwise: "columns",
		meaning: "Layout of a JSON answer: `columns` is one list for each part, `rows` an object for each row with the names of the classes.",
	}
	leverageQuery = &parameter[bool]{
		name: "leverage", kind: trueOrFalse,
		meaning: "Whether to show how far each row is from the rows that the model was learned from.",
	}
)

// answerForms are the forms of an answer by media type, the first for clients that take any.
var answerForms = []struct {
	media string
	form  predictions.Form
}{{"application/json", predictions.Columns}, {"text/csv", predictions.CSV}, {"application/vnd.apache.arrow.stream", predictions.Arrow}}

// formFor chooses the form of the answer by Accept (RFC 9110, 12.5.1) and ?form=.
func formFor(r *http.Request) (predictions.Form, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	form, best := predictions.Columns, 0.0
	var medias []string
	for _, offer := range answerForms {
		if q := acceptance(accept, offer.media); q > best {
			form, best = offer.form, q
		}
		medias = append(medias, offer.media)
	}
	switch {
	case best == 0:
		return 0, fail(CodeNotAcceptable, "Accept %q: an answer is one of %s", accept, strings.Join(medias, ", "))
	case form != predictions.Columns && asks(r, []described{formQuery}):
		return 0, fail(CodeBadRequest, "form says how JSON is laid out: leave it out with Accept %s", form.ContentType())
	case formQuery.of(r) == "rows":
		return predictions.Rows, nil
	}
	return form, nil
}

// acceptance is the weight, from 0 to 1, of a media type by the most specific range of Accept
// that covers it. An empty Accept takes everything.
func acceptance(accept, media string) (weight float64) {
	if strings.TrimSpace(accept) == "" {
		return 1
	}
	most := 0
	major, _, _ := strings.Cut(media, "/")
	for part := range strings.SplitSeq(accept, ",") {
		name, parameters, _ := strings.Cut(part, ";")
		rank := 0
		switch strings.ToLower(strings.TrimSpace(name)) {
		case media:
			rank = 3
		case major + "/*":
			rank = 2
		case "*/*":
			rank = 1
		}
		if rank > most {
			most, weight = rank, qualityOf(parameters)
		}
	}
	return weight
}

// rowTypes are the content types of rows.
var rowTypes = []string{wire.JSON.ContentType(), "application/x-ndjson", wire.CSV.ContentType(), wire.LIBSVM.ContentType(), wire.Arrow.ContentType()}

// formType is the content type that curl sends with -d or --data-binary when it is told
// none. Rows are never a form, so the body's first bytes decide.
const formType = "application/x-www-form-urlencoded"

func isForm(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), formType)
}

// takesRows says whether rows may come with the content type.
func takesRows(contentType string) bool {
	_, _, known := wire.FormatOf(contentType)
	return known || contentType == "" || isForm(contentType)
}

// formatOf is the format of a body, by its content type or its first bytes. The content
// type is one for a decoder.
func formatOf(declared string, content []byte) (format wire.Format, contentType string, err error) {
	form := isForm(declared)
	if declared != "" && !form {
		format, _, _ = wire.FormatOf(declared)
		return format, declared, nil
	}
	format = wire.Sniff(content)
	if form && format != wire.Arrow && format != wire.JSON && len(content) > 0 && !bytes.ContainsRune(content, '\n') {
		// Without its line ends a file of several rows can pass for another row.
		return 0, "", fail(CodeUnsupportedMediaType,
			"Content-Type %s, and the body is one line without an end: curl -d @FILE drops line ends, --data-binary keeps them; for a single row give one of %s", formType, strings.Join(rowTypes, ", "))
	}
	return format, format.ContentType(), nil
}

func (s *Server) predict(w http.ResponseWriter, r *http.Request) error {
	contentType := r.Header.Get("Content-Type")
	if !takesRows(contentType) {
		return fail(CodeUnsupportedMediaType, "Content-Type %q: want one of %s", contentType, strings.Join(rowTypes, ", "))
	}
	zipped, err := isZipped(r)
	if err != nil {
		return err
	}
	served, err := s.predictor(w, r)
	if err != nil {
		return err
	}
	ask, err := askedOf(r, served)
	if err != nil {
		return err
	}
	memory := &share{memory: s.memory, most: s.config.Memory}
	defer memory.shrink(0)
	content, err := s.content(r, zipped, memory)
	if err != nil {
		return err
	}
	format, contentType, err := formatOf(contentType, content)
	if err != nil {
		return err
	}
	answer, err := s.answer(r, served, ask, rowsBody{format, contentType, content}, memory)
	if err != nil {
		return err
	}
	return answer.write(w) // the slot is free again while the client reads
}

// rowsBody is rows to predict.
type rowsBody struct {
	format      wire.Format
	contentType string
	content     []byte
}

// answer predicts rows, and remembers the predictions that are to be. It leaves in the share the
// memory that the answer takes.
func (s *Server) answer(r *http.Request, served *model.Served, ask asked, body rowsBody, memory *share) (prediction, error) {
	p, remembered, err := s.answerTo(r, served, ask, body, memory)
	if err == nil && remembered != nil {
		err = s.remember(r.Context(), remembered, &p.Table)
	}
	return p, err
}

// answerTo reads the rows and predicts them. It returns those that are to be remembered, and leaves
// in the share the memory that the answer takes.
func (s *Server) answerTo(r *http.Request, served *model.Served, ask asked, body rowsBody, memory *share) (p prediction, remembered []rememberedRow, err error) {
	format, contentType, content := body.format, body.contentType, body.content
	// A number of eight bytes takes two bytes of text or more, and columns are twice as
	// long while they grow. LIBSVM leaves out zeros and Arrow may be packed: for both,
	// decode has a limit.
	columns, rowsAtMost := 8*len(content), min(len(content)/2+1, s.config.MaxRows)
	switch format {
	case wire.LIBSVM:
		rows := bytes.Count(content, []byte("\n")) + 1
		columns = min(max(columns, s.config.MaxBodyBytes), 16*rows*len(served.RowFeatures()))
	case wire.CSV:
		if s.config.Rows.Missing.Any() { // a missing number takes one byte
			columns, rowsAtMost = 2*columns, min(len(content), s.config.MaxRows)
		}
	case wire.Arrow:
		columns, rowsAtMost = s.config.MaxBodyBytes, s.config.MaxRows
	}
	if served.Schema != nil { // a text may be many features
		columns, rowsAtMost = max(columns, s.config.MaxBodyBytes), min(len(content)/2+1, s.config.MaxRows)
	}
	perRow := answerNumbers(served, ask)
	price := int64(columns) + 8*int64(min(rowsAtMost*perRow, maxNumbers))
	if price > smallPrediction {
		if ask.form == predictions.Arrow {
			price += predictions.BatchMemory
		}
		if err := memory.grow(r.Context(), price+zipMemory); err != nil {
			return p, nil, err
		}
	}
	if err := takeSlot(r.Context(), s.slots); err != nil {
		return p, nil, err
	}
	defer func() { <-s.slots }()
	var rows wire.Table
	if remembered, err = s.rememberedRows(r, format, contentType, content, served); err != nil {
		return p, nil, err
	}
	if remembered != nil {
		rows, err = s.readRemembered(remembered)
	} else {
		rows, err = s.decode(contentType, content, served)
	}
	if err != nil {
		return p, nil, err
	}
	if err := s.checkSize(rows.Rows, served, ask); err != nil {
		return p, nil, err
	}
	if p, err = predict(served, rows.Columns, rows.Rows, ask); err != nil {
		return p, nil, err
	}
	p.long = memory.held > 0
	left := zipMemory + 8*int64(rows.Rows*perRow)
	if remembered != nil {
		left += int64(columns) // they go to the log
	}
	if ask.form == predictions.Arrow {
		left += predictions.BatchMemory
	}
	if ask.contributions > 0 {
		left += int64(columns)
	} else {
		p.columns = nil
	}
	memory.shrink(left)
	return p, remembered, nil
}

// isZipped says whether the body is compressed with gzip.
func isZipped(r *http.Request) (bool, error) {
	switch coding := strings.ToLower(r.Header.Get("Content-Encoding")); coding {
	case "gzip":
		return true, nil
	case "", "identity":
		return false, nil
	default:
		return false, fail(CodeUnsupportedMediaType, "Content-Encoding %q: want gzip or none", coding)
	}
}

// content reads the body and decompresses it.
func (s *Server) content(r *http.Request, zipped bool, memory *share) ([]byte, error) {
	tooLarge := fail(CodeTooLarge, "the body is larger than %d bytes", s.config.MaxBodyBytes)
	if r.ContentLength > int64(s.config.MaxBodyBytes) {
		return nil, tooLarge
	}
	var body bytes.Buffer
	_, err := body.ReadFrom(io.LimitReader(r.Body, shortBody))
	if err == nil && body.Len() == shortBody {
		err = memory.read(r.Context(), &body, r.Body, s.config.MaxBodyBytes+1)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	if known, ok := errors.AsType[*failure](err); ok {
		return nil, known
	}
	if err != nil {
		return nil, fail(CodeBadRequest, "the body ended early")
	}
	if !zipped {
		return body.Bytes(), nil
	}
	var content bytes.Buffer
	from, err := gzip.NewReader(&body)
	if err == nil {
		err = memory.read(r.Context(), &content, from, s.config.MaxBodyBytes+1)
	}
	switch known, ok := errors.AsType[*failure](err); {
	case ok:
		return nil, known
	case err != nil:
		return nil, fail(CodeBadRequest, "the body cannot be decompressed: %v", err)
	case content.Len() > s.config.MaxBodyBytes:
		return nil, fail(CodeTooLarge, "the body is larger than %d bytes when it is decompressed", s.config.MaxBodyBytes)
	}
	return content.Bytes(), nil
}

// askedOf reads ?contributions=true&top=N&leverage=true.
func askedOf(r *http.Request, served *model.Served) (a asked, err error) {
	contributions, most := contributionsQuery.of(r), topQuery.of(r)
	n := len(served.Model.Features)
	if contributions && served.Basis != nil {
		return a, fail(CodeBadRequest, "contributions: the planes are in the coordinates of a kernel's basis, in which features have none of their own")
	}
	switch {
	case contributions:
		a.contributions = min(cmp.Or(most, n), n)
	case most > 0:
		return a, fail(CodeBadRequest, "top says how many contributions to show: it goes with contributions=true")
	}
	if a.leverage = leverageQuery.of(r); a.leverage && served.Hat == nil {
		return a, fail(CodeUnavailable, "leverage: %s", served.Absent.Hat)
	}
	if a.form, err = formFor(r); err != nil {
		return a, err
	}
	if (contributions || a.leverage) && a.form != predictions.Columns && a.form != predictions.Rows {
		return a, fail(CodeBadRequest, "contributions and leverages come as JSON alone: leave them out with Accept %s", a.form.ContentType())
	}
	return a, nil
}

// answerNumbers is the count of numbers in an answer for each row.
func answerNumbers(served *model.Served, ask asked) int {
	perRow := len(served.Model.Planes) * (1 + ask.contributions)
	if served.DecidesBy().HasProbabilities() {
		perRow += len(served.Model.Classes)
	}
	if ask.leverage {
		perRow += served.Hat.Matrices()
	}
	return perRow
}

// checkSize refuses rows whose answer would be too long or take too long.
func (s *Server) checkSize(rows int, served *model.Served, ask asked) error {
	if rows > s.config.MaxRows {
		return fail(CodeTooLarge, "%d rows: a prediction takes at most %d", rows, s.config.MaxRows)
	}
	n, perRow := len(served.Model.Features), answerNumbers(served, ask)
	if rows*perRow > maxNumbers {
		hint := ""
		if ask.contributions > 1 {
			hint = ", or ask for fewer contributions with top=N"
		}
		return fail(CodeTooLarge, "%d rows with %d numbers each: an answer has at most %d numbers; send at most %d rows%s",
			rows, perRow, maxNumbers, maxNumbers/perRow, hint)
	}
	if ask.leverage {
		perRow := int64(n) * int64(n) * int64(served.Hat.Matrices())
		if most := max(1, maxLeverageWork/perRow); int64(rows) > most {
			return fail(CodeTooLarge, "%d rows: with leverage=true, a prediction of %d features takes at most %d", rows, n, most)
		}
	}
	return nil
}

// decode reads rows for the served model in body. The table may share its memory.
func (s *Server) decode(contentType string, body []byte, served *model.Served) (wire.Table, error) {
	options := s.config.Rows
	// Columns that the model does not have are ignored, since it has no weights for them.
	options.Format, options.Features, options.IgnoreUnknown = 0, served.RowFeatures(), true
	if options.Schema = nil; served.Schema != nil {
		options.Schema, options.Limits.Numbers = served.Schema, s.config.MaxBodyBytes
	}
	// An Arrow body may unpack to no more than the limit of a body. The rows of tensors may be
	// longer than their body was. The caller checks the number of rows, for which it has an error
	// code.
	options.Limits.Bytes = max(s.config.MaxBodyBytes, len(body))
	options.Limits.Rows = options.Limits.Bytes
	decoder, err := wire.NewDecoder(options)
	if err != nil {
		return wire.Table{}, fmt.Errorf("predict: %w", err)
	}
	table, err := decoder.DecodeUnlabelled(contentType, body)
	if err != nil {
		return wire.Table{}, fail(CodeBadRequest, "%v", err)
	}
	return table, nil
}
