//go:build !cgo

package reduce

import "ringmaster/distributed"

// Without cgo everything is computed in Go.

func fastSum(distributed.DType, []byte, [][]byte) bool { return false }

func fastNonFinite([]byte) (found, ok bool) { return false, false }
