//go:build cgo

package gpu

import (
	"slices"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// Prepare makes the pipelines that ops on weights of the types use, and tries the device with
// each type that it has not tried yet: see kernels.Prepare.
func (b *Backend) Prepare(u kernels.Uses) error {
	if err := b.Build(u); err != nil {
		return err
	}
	return b.tryTypes(u)
}

// Build makes the pipelines of Prepare.
func (b *Backend) Build(u kernels.Uses) error {
	if b.m == nil {
		return errClosed
	}
	for _, k := range b.kernelsOf(u) {
		if _, err := b.pipelineOf(k); err != nil {
			return err
		}
	}
	return nil
}

// kernelsOf are the rare kernels that ops on weights of the types use.
func (b *Backend) kernelsOf(u kernels.Uses) []*kernel {
	var all []*kernel
	add := func(types []gguf.Type, tables ...map[gguf.Type]*kernel) {
		for _, t := range types {
			for _, byType := range tables {
				if k := byType[t]; k != nil {
					all = append(all, k)
				}
			}
		}
	}
	add(u.Rows, embedKernels)
	if b.info.Packed {
		add(u.Products, packed1, packed4, packed8, packedGEMM)
		add(u.Experts, packedGateUp, packedExpert, packedExperts)
		return append(all, packKernel)
	}
	add(u.Products, gemv1Kernels, gemv4Kernels, gemv8Kernels, gemvManyKernels, gemmKernels)
	add(u.Experts, expertGateUpKernels, expertGEMVKernels, expertSumKernels, expertGEMMKernels)
	for pair, k := range gemvMixedKernels {
		if slices.Contains(u.Products, pair[0]) && slices.Contains(u.Products, pair[1]) {
			all = append(all, k)
		}
	}
	return all
}

// Pipelines is how many pipelines were made.
func (b *Backend) Pipelines() int {
	n := 0
	for _, p := range b.pipelines {
		if p.threads > 0 {
			n++
		}
	}
	return n
}
