package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"streamd/incremental"
)

// smallLabels is the width of the window around 0 in which integer labels find
// their code in a table instead of a map.
const smallLabels = 512

// labels gives the rows of a block their codes. Class strings outlive the block
// they were first seen in, so that a stream with the same few classes allocates
// none; the numbering starts anew with each block, in order of first appearance,
// so that it depends on the block alone.
//
// Its methods return a code, or -1 and the reason why the label is refused.
type labels struct {
	max  int    // classes in one block, without incremental.Unlabelled
	keep bool   // rows without a label
	end  string // of texts, which is no part of a label
	none string // the class that stands for no label, or notANumber; empty: none does
	rows bool   // they are ids of rows (Options.LabelIsID)

	names []string  // id → class
	ids   spellings // class → id
	texts spellings // text → id

	codes   []int32            // id → code in this block, -1: not seen in it
	small   [smallLabels]int32 // integer + smallLabels/2 → code in this block, or -1
	seen    []int              // places in small that are not -1
	used    []int32            // code → id
	classes []string           // code → class
	scratch []byte
}

// keptIDs bounds the ids of rows that are kept from one block to the next. They do not come again.
const keptIDs = 1024

// notANumber is the class of the labels that are NaN, which is no class.
const notANumber = "NaN"

func newLabels(opts *Options) *labels {
	l := &labels{max: opts.Limits.Classes, keep: opts.KeepUnlabelled, end: opts.LabelSuffix}
	if text := opts.UnlabelledText; text != "" {
		if l.none = notANumber; !isNaN(text) {
			l.none, _ = classOfText(text)
		}
	}
	if opts.LabelIsID {
		l.rows, l.max, l.keep, l.end, l.none = true, opts.Limits.Rows, false, "", ""
	}
	for i := range l.small {
		l.small[i] = -1
	}
	l.forget()
	return l
}

func (l *labels) forget() {
	l.names, l.codes, l.used = nil, nil, nil
	l.ids, l.texts = newSpellings(), newSpellings()
}

// reset starts a block.
func (l *labels) reset() {
	if len(l.names) > 4*l.max || l.rows && len(l.names) > keptIDs { // those of past blocks must not pile up
		l.forget()
	}
	for _, id := range l.used {
		l.codes[id] = -1
	}
	for _, at := range l.seen { // blocks of one row are common
		l.small[at] = -1
	}
	l.seen, l.used, l.classes = l.seen[:0], l.used[:0], l.classes[:0]
}

// word is what a label is called in errors.
func (l *labels) word() string {
	if l.rows {
		return "id"
	}
	return "label"
}

func (l *labels) code(id int32) (int32, string) {
	if c := l.codes[id]; c >= 0 {
		return c, ""
	}
	if len(l.classes) >= l.max && l.names[id] != incremental.Unlabelled &&
		(len(l.classes) > l.max || !slices.Contains(l.classes, incremental.Unlabelled)) {
		return -1, fmt.Sprintf("the block has more than %d classes", l.max)
	}
	c := int32(len(l.classes))
	l.codes[id] = c
	l.used = append(l.used, id)
	l.classes = append(l.classes, l.names[id])
	return c, ""
}

func (l *labels) intern(class string) int32 {
	if known, ok := l.ids.all[class]; ok {
		return known.id
	}
	id := int32(len(l.names))
	l.names = append(l.names, class)
	l.codes = append(l.codes, -1)
	l.ids.add(class, id)
	return id
}

// text is for a label that is a text.
func (l *labels) text(b []byte) (int32, string) {
	id, ok := l.texts.id(b)
	if !ok {
		label := string(b)
		class, reason := l.classOf(label)
		if reason != "" {
			return -1, reason
		}
		id = l.intern(class)
		if len(l.texts.all) < 4*l.max {
			l.texts.add(label, id)
		}
	}
	return l.code(id)
}

// classOf is the class of a label that is a text, or incremental.Unlabelled.
func (l *labels) classOf(label string) (class, reason string) {
	if l.rows {
		return label, badID(label)
	}
	label = strings.TrimSuffix(label, l.end)
	if label == "" {
		return incremental.Unlabelled, l.refusal("the label is empty")
	}
	if err := incremental.CheckLabel(label); err != nil {
		return "", err.Error()
	}
	class, reason = classOfText(label)
	switch {
	case l.none == "":
	case l.none == class, l.none == notANumber && isNaN(label):
		return incremental.Unlabelled, l.refusal(labelIsNone)
	}
	return class, reason
}

// badID is the reason why a text is no id of a row, or "".
func badID(id string) string {
	if err := incremental.CheckLabel(id); err != nil {
		return strings.Replace(err.Error(), "the label", "the id", 1)
	}
	return ""
}

// integer is for a label that is an integer of more than 53 bits.
func (l *labels) integer(digits []byte) (int32, string) {
	if !l.rows {
		return -1, fmt.Sprintf("the label %s has more than 53 bits; send it as a string", digits)
	}
	return l.text(digits)
}

// absent is for a row without a label. why says how that shows.
func (l *labels) absent(why string) (int32, string) {
	if reason := l.refusal(why); reason != "" {
		return -1, reason
	}
	return l.code(l.intern(incremental.Unlabelled))
}

// The signs of a row without a label, beside an empty text.
const (
	labelIsNull    = "the label is null"
	labelIsMissing = "the label is missing"
	labelIsNone    = "the label is the text for none"
)

// refusal is the reason why a row without a label is refused, or "".
func (l *labels) refusal(why string) string {
	switch {
	case l.keep:
		return ""
	case l.rows:
		return strings.Replace(why, "the label", "the id", 1)
	}
	return why + ": send one, or keep rows without labels (unlabelled: keep)"
}

// The classes of booleans.
var falseLabel, trueLabel = []byte("false"), []byte("true")

// boolean is for a label that is a boolean in its format.
func (l *labels) boolean(is bool) (int32, string) {
	if is {
		return l.text(trueLabel)
	}
	return l.text(falseLabel)
}

// number is for a label that is a number in its format.
func (l *labels) number(x float64) (code int32, reason string) {
	k := int(x)
	at := k + smallLabels/2
	small := uint(at) < smallLabels && float64(k) == x
	if small && l.small[at] >= 0 {
		return l.small[at], ""
	}
	if code, reason = l.anyNumber(x); small && reason == "" {
		l.small[at], l.seen = code, append(l.seen, at)
	}
	return code, reason
}

func (l *labels) anyNumber(x float64) (int32, string) {
	switch {
	case math.IsNaN(x) && l.none == notANumber:
		return l.absent(labelIsNone)
	case math.IsNaN(x) || math.IsInf(x, 0):
		return -1, fmt.Sprintf("the %s is %v", l.word(), x)
	}
	l.scratch = incremental.AppendNumberLabel(l.scratch[:0], x)
	if string(l.scratch) == l.none {
		return l.absent(labelIsNone)
	}
	id, ok := l.ids.id(l.scratch)
	if !ok {
		id = l.intern(string(l.scratch))
	}
	return l.code(id)
}

// spellings are the texts that stand for a class.
type spellings struct {
	all map[string]spelling

	// Most rows have one of a few labels. Those are found here, by their ends and their
	// length, faster than in the map.
	recent [64]spelling
}

type spelling struct {
	text string
	id   int32
}

func newSpellings() spellings { return spellings{all: make(map[string]spelling)} }

func (s *spellings) add(text string, id int32) { s.all[text] = spelling{text, id} }

// id is the id of a known text. Nothing is allocated.
func (s *spellings) id(b []byte) (id int32, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	recent := &s.recent[(3*uint(b[0])+5*uint(b[len(b)-1])+uint(len(b)))%uint(len(s.recent))]
	if recent.text == string(b) {
		return recent.id, true
	}
	known, ok := s.all[string(b)]
	if ok {
		*recent = known
	}
	return known.id, ok
}

// sharesFloat is whether s, which reads as x, is an integer so long that its
// neighbours may read as x, too: an id rather than a quantity.
func sharesFloat(s string, x float64) bool {
	return math.Abs(x) >= 1<<53 && !strings.ContainsAny(s, ".eE")
}

// Label is the class that a text stands for as a label: see the package comment. The
// error says why it stands for none.
func Label(text string) (class string, err error) {
	if err := incremental.CheckLabel(text); err != nil {
		return "", err
	}
	class, reason := classOfText(text)
	if reason != "" {
		return "", errors.New(reason)
	}
	return class, nil
}

// isNaN is whether a text spells NaN.
func isNaN(text string) bool {
	return strings.EqualFold(strings.TrimLeft(text, "+-"), "nan")
}

// CheckUnlabelledText says why a text cannot be Options.UnlabelledText: it is neither
// empty nor NaN, and no label.
func CheckUnlabelledText(text string) error {
	if text == "" || isNaN(text) {
		return nil
	}
	_, err := Label(text)
	return err
}

// classOfText is the class of a label that is a text.
func classOfText(s string) (class, reason string) {
	if x, end, ok := number([]byte(s), 0); ok && end == len(s) && !isCode(s, x) {
		if math.IsInf(x, 0) {
			return "", "the label overflows float64"
		}
		return incremental.NumberLabel(x), ""
	}
	if is, ok := parseBoolean([]byte(s)); ok {
		return strconv.FormatBool(is), ""
	}
	if t, ok := parseTime([]byte(s)); ok {
		if label, ok := t.appendLabel(nil); ok {
			return string(label), ""
		}
	}
	switch strings.ToLower(strings.TrimLeft(s, "+-")) {
	case "nan", "inf", "infinity":
		return "", fmt.Sprintf("the label is %s", s)
	}
	return s, ""
}

// isCode is whether s, which reads as x, is made of digits but names something rather
// than counting it: a number with leading zeros, or an integer of more than 53 bits.
func isCode(s string, x float64) bool {
	s = strings.TrimLeft(s, "+-")
	return len(s) > 1 && s[0] == '0' && s[1]-'0' < 10 || sharesFloat(s, x)
}
