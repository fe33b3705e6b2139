//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"ringmaster/kernels/kerneltest"
)

func TestMatMul(t *testing.T) { kerneltest.Run(t, open, "Embed", "MatMul", "MatMulGrouped") }
