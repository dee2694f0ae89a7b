//go:build !linux

package snapshot

import (
	"os"

	"go.etcd.io/bbolt"
)

func forgetPages(*bbolt.Tx) {}

func willNeed(*os.File, int64, int64) {}
