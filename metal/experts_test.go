//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"ringmaster/kernels/kerneltest"
	"ringmaster/metal"
)

// eachKernel runs f with the kernels for a few slots of an expert and with those
// for many.
func eachKernel(t *testing.T, f func(t *testing.T)) {
	for name, many := range map[string]int{"rows": 1 << 20, "tiles": 0} {
		t.Run(name, func(t *testing.T) {
			defer metal.SetManySlots(metal.SetManySlots(many))
			f(t)
		})
	}
}

func TestExperts(t *testing.T) {
	eachKernel(t, func(t *testing.T) { kerneltest.Run(t, open, "ExpertGateUp", "ExpertDown") })
}
