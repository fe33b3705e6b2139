package plan

import (
	"testing"

	"ringmaster/distributed"
)

// BenchmarkPlanner plans new lengths in known octaves.
func BenchmarkPlanner(b *testing.B) {
	p, err := NewPlanner(Config{Topology: Ring(4, 2), Cap: 7})
	if err != nil {
		b.Fatal(err)
	}
	n := int64(0)
	for b.Loop() {
		n++
		if _, err := p.Plan(Request{Op: AllGatherV, Sizes: []int64{14336 + n%1000, 14336, 0, 7168}}); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Plan(Request{Op: AllSum, DType: distributed.Float16, Bytes: 7<<20 + n%1000*2}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNew plans a prefill's sum without remembered choices.
func BenchmarkNew(b *testing.B) {
	for name, cfg := range map[string]Config{
		"mesh of 4": {Topology: Mesh(4, 2), Cap: 7}, "ring of 4": {Topology: Ring(4, 2), Cap: 7}, "ring of 8": {Topology: Ring(8, 2), Cap: 7},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := New(cfg, Request{Op: AllSum, DType: distributed.Float16, Bytes: 7 << 20}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
