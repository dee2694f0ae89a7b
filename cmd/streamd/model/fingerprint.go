package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
)

// Fingerprint identifies a served value by its content.
func Fingerprint(s *Served) string {
	h := sha256.New()
	text := func(parts ...string) {
		for _, p := range parts {
			binary.Write(h, binary.LittleEndian, int64(len(p)))
			h.Write([]byte(p))
		}
	}
	number := func(xs ...int64) {
		binary.Write(h, binary.LittleEndian, xs)
	}
	text(s.Problem, s.Digest, s.BasisID(), strconv.FormatBool(s.Basis != nil && s.Basis.Stale))
	number(s.Rows, int64(s.Blocks), s.MadeAt.UnixNano())
	for _, o := range s.Offsets {
		text(o.Topic)
		number(int64(o.Partition), o.Next)
	}
	if s.Model != nil {
		// The digest covers classes and features. Of the options only ν and scaling
		// change while a process lives, and MadeAt is a time within that life. Of the
		// rule its kind and threshold change, and the curves below.
		number(int64(math.Float64bits(s.Model.Options.Nu)), int64(math.Float64bits(s.DecidesBy().Threshold())))
		text(strconv.FormatBool(s.Model.Options.Standardise), string(s.DecidesBy().Kind()))
		for _, p := range s.Model.Planes {
			text(p.Class)
			for _, w := range p.W {
				number(int64(math.Float64bits(w)))
			}
			number(int64(math.Float64bits(p.Gamma)))
		}
	}
	all := []any{s.Missing, s.Tuning, s.Refinement, s.Calibration, s.Quality, s.Absent}
	if s.Forgetting != nil {
		all = append(all, s.Forgetting)
	}
	if s.Window != nil {
		all = append(all, s.Window)
	}
	parts, err := json.Marshal(all)
	if err != nil {
		panic(err) // finite numbers and texts
	}
	h.Write(parts)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
