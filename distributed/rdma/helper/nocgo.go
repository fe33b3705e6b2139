//go:build !cgo || !(linux || darwin)

package helper

import (
	"fmt"
	"os"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

// Open needs cgo, as verbs does.
func Open(string, time.Duration) (*verbs.Library, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo, or for a system without verbs", distributed.ErrUnavailable)
}

// Main is never called, because Open starts no helper.
func Main() { os.Exit(1) }
