package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
)

// publication is what is served, and the channel that is closed when something
// else is.
type publication struct {
	served   *httpapi.Served
	replaced chan struct{}
}

// solve starts reading the hyperplanes off the state as it is now. The loop
// copies the sums and goes on; a goroutine solves, and gives the result back
// to the loop.
func (d *Daemon) solve(now time.Time) {
	for _, p := range d.partitions {
		if err := d.flushRun(p); err != nil {
			d.fail(err)
			return
		}
	}
	d.changed, d.lastSolve = false, now
	next := &httpapi.Served{
		Rows:    d.live.ledger.Rows(),
		Blocks:  d.live.ledger.Len(),
		Digest:  digestOf(d.live.state),
		Offsets: d.offsets(),
		MadeAt:  now.UTC(),
		Absent: httpapi.Absent{
			Tuning:      "model.nu is a number",
			Refinement:  "this daemon does not refine planes",
			Calibration: "this daemon does not calibrate",
			Quality:     "this daemon does not hold rows out",
		},
	}
	last := d.published.Load().served
	if d.solvedOnce && last.Digest == next.Digest {
		// The same sums have the same planes, but the stream has moved on.
		next.Model, next.Hat, next.Problem = last.Model, last.Hat, last.Problem
		d.publish(next)
		return
	}
	moments := d.live.state.Moments()
	d.copyTook = time.Since(now)
	d.solving, d.solvedOnce = true, true
	go func() {
		from := time.Now()
		model, hat, err := moments.SolveWithHat(d.options)
		d.metrics.SolveSeconds.Observe(time.Since(from).Seconds())
		if err != nil {
			next.Problem = err.Error()
		} else {
			next.Model, next.Hat = model, hat
		}
		d.solved <- next
	}()
}

// publish serves next from now on.
func (d *Daemon) publish(next *httpapi.Served) {
	d.solving = false
	last := d.published.Load()
	if same(last.served, next) {
		return
	}
	// Before the first rows it is no news that there is no model.
	if next.Problem != "" && next.Problem != last.served.Problem && next.Rows > 0 {
		d.log.Warn().Str("problem", next.Problem).Msg("there is no model")
	}
	next.Fingerprint = fingerprint(next)
	d.published.Store(&publication{served: next, replaced: make(chan struct{})})
	close(last.replaced)
}

// same says whether two values differ in nothing but when they were made.
func same(a, b *httpapi.Served) bool {
	return a.Digest == b.Digest && a.Model == b.Model && a.Problem == b.Problem &&
		a.Blocks == b.Blocks && slices.Equal(a.Offsets, b.Offsets)
}

// fingerprint names a served value by its content.
func fingerprint(s *httpapi.Served) string {
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
	text(s.Problem, s.Digest)
	number(s.Rows, int64(s.Blocks), s.MadeAt.UnixNano())
	for _, o := range s.Offsets {
		text(o.Topic)
		number(int64(o.Partition), o.Next)
	}
	if s.Model != nil {
		// Classes and features are part of the digest, options are fixed for
		// the life of the process that made_at belongs to.
		for _, p := range s.Model.Planes {
			text(p.Class)
			for _, w := range p.W {
				number(int64(math.Float64bits(w)))
			}
			number(int64(math.Float64bits(p.Gamma)))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func digestOf(s *incremental.State) string {
	digest := s.Digest()
	return hex.EncodeToString(digest[:])
}

// offsets says how far each partition has been applied.
func (d *Daemon) offsets() []httpapi.Offset {
	var out []httpapi.Offset
	for at, p := range d.partitions {
		if p.at.Next >= 0 {
			out = append(out, httpapi.Offset{Topic: at.topic, Partition: at.number, Next: p.at.Next})
		}
	}
	slices.SortFunc(out, func(a, b httpapi.Offset) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return a.Partition - b.Partition
	})
	return out
}
