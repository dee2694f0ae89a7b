//go:build !production

package main

import (
	"testing"
	"time"
)

// A demo whose stop hangs ends, too, and not before its daemon has said what it waited for.
func TestDemoStops(t *testing.T) {
	if limit := (&demoCmd{}).stopsWithin(); limit > 10*time.Second || limit <= demoShutdown {
		t.Errorf("the demo may take %s to stop", limit)
	}
}
