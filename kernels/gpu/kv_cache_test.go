//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"testing"

	"ringmaster/kernels/kerneltest"
)

func TestKVCache(t *testing.T) { kerneltest.Run(t, open, "StoreKV", "Compress") }
