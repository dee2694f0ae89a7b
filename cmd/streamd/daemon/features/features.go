// Package features goes from one set of features to the next, and learns the lists of values that
// features are made by.
//
//	refeaturing.go  live blocks are read again in other features, beside those in use
//	lists.go        lists of values are learned, on request
//
// All of it belongs to the loop but the calls of HTTP, Lists.Wanted, and Complete.
package features

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/saving"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
)

// Features changes the features of a daemon, when others are configured or lists were learned.
type Features struct {
	*loop.Loop
	saver  *saving.Saver
	lists  *Lists
	change *change // nil: the features stay
}

// New begins or continues a change from the features was to those of the wanted configuration, not
// before notUntil. was is nil if the features stay. The state of the loop has been restored.
func New(l *loop.Loop, s *saving.Saver, lists *Lists, wanted *config.Config, was []string, notUntil time.Time) (f *Features, err error) {
	f = &Features{Loop: l, saver: s, lists: lists}
	if was != nil {
		f.change, err = newChange(l, lists, wanted, was, notUntil)
		return f, err
	}
	// A change is complete, or no longer wanted.
	if err := os.Remove(Path(wanted.Snapshot.File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f, nil
}

// WhenDue begins a pass for a change, or its end.
func (f *Features) WhenDue(now time.Time) error {
	if f.change == nil {
		return nil
	}
	return f.change.whenDue(now)
}

// Complete completes the change under way, if there is one. The loop has ended and has saved.
func (f *Features) Complete(ctx context.Context) error {
	if f.change == nil { // lists were learned, and the successor begins the change
		return nil
	}
	return f.change.complete(ctx)
}

// CloseFile ends this process's part in a change.
func (f *Features) CloseFile() error {
	if f.change == nil {
		return nil
	}
	return f.change.close()
}

// File is the path of the file of the change under way, or "".
func (f *Features) File() string {
	if f.change == nil {
		return ""
	}
	return f.change.path
}

// Unread is the number of blocks that the log does not return in the wanted features.
func (f *Features) Unread() int {
	if f.change == nil {
		return 0
	}
	return len(f.change.unread)
}

// Conditions lists what the operator should know of a change.
func (f *Features) Conditions() []httpapi.Problem {
	if f.change == nil {
		return nil
	}
	return []httpapi.Problem{f.change.condition()}
}

// ValueConditions lists what the operator should know of the values of categories in the live rows.
func (f *Features) ValueConditions(served *model.Served) (all []httpapi.Problem) {
	if served.Rows > 0 && f.change == nil {
		all = f.lists.conditions()
	}
	told := slices.Clone(all)
	for _, u := range served.Undeclared {
		known := slices.ContainsFunc(told, func(p httpapi.Problem) bool { return p.Subject == u.Feature })
		if u.Lacks(served.Rows) && !known && !(f.change != nil && f.lists.learns(u.Feature)) {
			all = append(all, httpapi.Problem{
				Kind: httpapi.ProblemValues, Subject: u.Feature, Action: f.lists.action(u.Feature),
				Text: fmt.Sprintf("%.1f %% of the live rows have values of category %q that the schema does not declare", 100*u.Share, u.Feature),
			})
		}
	}
	return all
}
