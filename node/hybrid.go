package node

import (
	"log/slog"

	"ringmaster/internal/host"
	"ringmaster/internal/usage"
	"ringmaster/kernels/hybrid"
	"ringmaster/model/decoder"
)

// onGPU is what of the model the GPU computes, and the bytes that it may use for that.
type onGPU struct {
	what    decoder.OnGPU
	bytes   int64
	program int64 // of the process, which plans count and which are in the host's memory
}

// placeOnGPU decides what of the model the GPU computes that has been opened. If its memory
// is not the host's, that is what it has room for. Without room for all of the model the CPU
// computes the routed experts, from the host's memory.
func (n *Node) placeOnGPU() error {
	n.gpu.bytes = n.o.Compute.limited(n.gpu.bytes)
	if !n.gpu.own && !n.o.Compute.ExpertsOnCPU {
		return nil
	}
	card, err := n.planOptions().OnCard(n.gpu.bytes, n.o.Compute.ExpertsOnCPU)
	if err != nil {
		return err
	}
	n.onGPU = onGPU{card.On, n.gpu.bytes, card.Program}
	switch card.On {
	case decoder.NothingOnGPU:
		return usage.Errorf("--backend: %s; use a smaller --ctx or --max-batch, or --backend cpu", card.Why())
	case decoder.DenseOnGPU:
		slog.Info("the GPU and the CPU compute", "why", card.Why())
		return n.openHybrid()
	}
	slog.Info("the GPU computes", "why", card.Why())
	return nil
}

// openHybrid adds the CPU to the GPU that has been opened.
func (n *Node) openHybrid() error {
	gpu, name := n.Backend, n.Kernels
	if err := n.openCPU(); err != nil {
		return err // Close closes the GPU
	}
	n.Backend, n.Kernels = hybrid.New(gpu, n.CPU), name+", experts on "+n.Kernels
	n.gpu = gpuMemory{} // the host's memory has the experts
	return nil
}

// offered is the memory that plans may count on, if it is known: where all of the model is on a
// GPU, its memory and the program's own in the host's.
func (n *Node) offered() (host.Memory, bool) {
	m, known := n.SystemMemory()
	if n.gpu.own && n.onGPU.what == decoder.AllOnGPU {
		m.Total += n.onGPU.program
		m.Available += n.onGPU.program
	}
	return m, known
}

// ownLimit is the most bytes that this rank may use beside the mapped weights, 0 for no
// limit: --memory, and what the dense part leaves of the GPU's memory.
func (n *Node) ownLimit() (int64, error) {
	if n.onGPU.what != decoder.DenseOnGPU {
		return n.o.Memory, nil
	}
	dense, err := n.planOptions().GPUWeights(n.onGPU.what)
	if err != nil {
		return 0, err
	}
	if left := n.onGPU.bytes - dense + n.onGPU.program; n.o.Memory == 0 || left < n.o.Memory {
		return max(left, 1), nil
	}
	return n.o.Memory, nil
}
