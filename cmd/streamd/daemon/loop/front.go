package loop

import (
	"sync/atomic"

	"streamd/cmd/streamd/model"
)

// Front has what is served. The loop replaces it, and everybody reads it.
type Front struct{ now atomic.Pointer[Publication] }

// Publication is the served value, and a channel that is closed when it is replaced.
type Publication struct {
	Served   *model.Served
	Fixed    *[]string // the model's features
	Replaced chan struct{}
}

func newFront() *Front {
	f := &Front{}
	f.now.Store(&Publication{Served: &model.Served{Durable: true}, Replaced: make(chan struct{})})
	return f
}

// Now is what is served.
func (f *Front) Now() *Publication { return f.now.Load() }

// Served is the served value.
func (f *Front) Served() *model.Served { return f.Now().Served }

// ServedOf is the served value if its model has these features.
func (f *Front) ServedOf(features *[]string) *model.Served {
	if now := f.now.Load(); now.Fixed == features {
		return now.Served
	}
	return &model.Served{}
}

// Replace serves next, and tells those who wait for it.
func (f *Front) Replace(next *model.Served, fixed *[]string) {
	last := f.now.Swap(&Publication{Served: next, Fixed: fixed, Replaced: make(chan struct{})})
	close(last.Replaced)
}
