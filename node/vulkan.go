package node

import (
	"errors"
	"log/slog"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/vulkan"
	"ringmaster/model/decoder"
)

// autoVulkan takes a GPU that Vulkan shows if the model fits and the GPU opens, else the
// CPU, and logs why. In a group it takes the CPU, because ranks must compute the same bits and
// only the same card with the same driver does.
func (n *Node) autoVulkan() error {
	all, err := vulkan.Devices()
	number := -1
	if err == nil {
		number, err = vulkan.Choose(all)
	}
	var unsuitable *vulkan.UnsuitableError
	switch {
	case errors.As(err, &unsuitable) && unsuitable.NoGPU:
		slog.Debug("computing on the CPU: Vulkan shows no GPU", "error", err)
		return n.openCPU()
	case err != nil:
		slog.Warn("computing on the CPU: there is no suitable GPU", "error", err)
		return n.openCPU()
	}
	gpu := all[number]
	if n.o.Group != nil {
		slog.Info("computing on the CPU: in a group all ranks need the same GPU and driver; --backend vulkan on all of them uses it", "device", gpu.Name)
		return n.openCPU()
	}
	if n.o.Activations != cpu.Bits15 {
		slog.Info("computing on the CPU: --activations is for the CPU", "device", gpu.Name)
		return n.openCPU()
	}
	if gpu.Unified && !n.o.Compute.ExpertsOnCPU {
		if need := n.File.Size(); need > n.o.Compute.limited(int64(gpu.Budget)) {
			slog.Warn("computing on the CPU: the model does not fit the GPU", "device", gpu.Name, "model", units.Bytes(need), "gpu_memory", gpu.Memory())
			return n.openCPU()
		}
		return n.tryVulkan(gpu)
	}
	card, err := n.planOptions().OnCard(n.o.Compute.limited(int64(gpu.Budget)), n.o.Compute.ExpertsOnCPU)
	if err != nil {
		return err
	}
	if card.On == decoder.NothingOnGPU {
		slog.Warn("computing on the CPU: the model does not fit the GPU", "device", gpu.Name, "why", card.Why(), "gpu_memory", gpu.Memory())
		return n.openCPU()
	}
	return n.tryVulkan(gpu)
}

// tryVulkan opens the GPU, and the CPU in its place, with the reason in the log, if it cannot
// be opened: drivers are many.
func (n *Node) tryVulkan(gpu vulkan.Description) error {
	err := n.openVulkan()
	if err == nil {
		n.autoGPU = true
		return nil
	}
	slog.Warn("computing on the CPU: the GPU cannot be used", "device", gpu.Name, "error", err)
	return n.replaceGPU()
}

// replaceable reports whether the CPU may run a model in place of the GPU that auto chose,
// which failed to load it. Where both share a memory that has no room for the model, the CPU has
// none either.
func (n *Node) replaceable(failure error) bool {
	var wrong *kernels.WrongTypeError
	return n.autoGPU && (!n.isMetal || errors.As(failure, &wrong))
}

// aloneOnCPU loads the whole model on the CPU in place of the GPU that auto chose, which failed
// to load it.
func (n *Node) aloneOnCPU(failure error) error {
	slog.Warn("computing on the CPU: the model cannot be loaded on the GPU", "backend", n.Kernels, "error", failure)
	if err := n.replaceGPU(); err != nil {
		return err
	}
	n.wrapBackend()
	return n.alone()
}

// replaceGPU closes the backend of a GPU and opens the CPU's.
func (n *Node) replaceGPU() error {
	if n.Backend != nil {
		if err := n.Backend.Close(); err != nil {
			return err
		}
	}
	n.Backend, n.CPU, n.GPU, n.gpu, n.onGPU, n.autoGPU = nil, nil, nil, gpuMemory{}, onGPU{}, false
	return n.openCPU()
}

func (n *Node) openVulkan() error {
	if n.o.Activations != cpu.Bits15 {
		return usage.Errorf("--activations %s is for the CPU: on a GPU activations have 15 bits; use --backend cpu", n.o.Activations)
	}
	b, err := vulkan.Open(vulkan.Options{})
	var unsuitable *vulkan.UnsuitableError
	if errors.As(err, &unsuitable) {
		return usage.Wrap(err)
	}
	if err != nil {
		return err
	}
	gpu := b.Device()
	slog.Info("using Vulkan", "device", gpu.Name, "kind", gpu.Kind.String(), "driver", gpu.Driver, "memory", gpu.Memory())
	n.gpu = gpuMemory{bytes: b.WorkingSet(), own: !gpu.Unified, cure: groupplan.MoreVRAM}
	if gpu.Unified {
		n.gpu.cure = groupplan.RaiseGTT
	}
	n.useGPU(b, vulkan.Kernels(b))
	return n.placeOnGPU()
}
