//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"ringmaster/kernels/kerneltest"
)

func TestStreams(t *testing.T) {
	kerneltest.Run(t, open, "HCInit", "HCMix", "HCCollapse", "HCExpand", "HCHead")
}
