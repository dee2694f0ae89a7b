//go:build !linux

package bench

import "time"

func threadTime() time.Duration { return 0 }
