//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"ringmaster/kernels/kerneltest"
)

func TestRoute(t *testing.T) { kerneltest.Run(t, open, "Route", "ExpertMask", "ExpertCompact") }
