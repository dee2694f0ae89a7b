//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package receipts

import "os"

func lockKey(string) (*os.File, error) { return nil, nil }
