package node

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"ringmaster/groupplan"
	"ringmaster/internal/host"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/gpu"
	"ringmaster/metal"
)

// openBackend opens the backend of the options. Where the host has no GPU that can run the
// kernels, AutoBackend takes the CPU and logs why; any other failure is an error.
func (n *Node) openBackend() error {
	switch n.o.Compute.Backend {
	case MetalBackend:
		return n.openMetal()
	case VulkanBackend:
		return n.openVulkan()
	case CPUBackend:
		return n.openCPU()
	}
	if metal.Available {
		err := n.openMetal()
		var unsuitable *metal.UnsuitableError
		if errors.As(err, &unsuitable) {
			slog.Warn("computing on the CPU: there is no suitable GPU", "error", unsuitable)
			return n.openCPU()
		}
		n.autoGPU, n.isMetal = err == nil, true
		return err
	}
	return n.autoVulkan()
}

func (n *Node) openCPU() error {
	threads, level := n.o.Threads, n.o.Level
	if quota := host.CPUQuota(); threads == 0 && quota > 0 {
		// More threads than the CPU quota allows would only wait for each other.
		threads = min(quota, runtime.NumCPU())
	}
	b, err := cpu.Open(cpu.Options{Threads: threads, Level: level, Activations: n.o.Activations})
	if err != nil && !slices.Contains(cpu.Levels(), level) {
		return usage.Wrap(err)
	}
	if err != nil {
		return err
	}
	n.Backend, n.CPU, n.Kernels, n.math, n.Threads = b, b, "cpu "+level.SameBits().String(), cpu.MathBits(), b.Threads()
	if n.o.Activations != cpu.Bits15 {
		n.Kernels += ", " + n.o.Activations.String() + "-bit activations"
	}
	return nil
}

func (n *Node) openMetal() error {
	b, err := metal.Open(metal.Options{KeepWired: n.o.KeepWired, Progress: func(done, of int) {
		slog.Info("compiling Metal kernels", "libraries", fmt.Sprintf("%d of %d", done, of))
	}})
	if err != nil {
		if n.o.Compute.Backend == AutoBackend {
			err = fmt.Errorf("%w; use --backend cpu to run on the CPU instead", err)
		}
		var unsuitable *metal.UnsuitableError
		if errors.As(err, &unsuitable) {
			return usage.Wrap(err) // of --backend metal; with auto another is taken
		}
		return err
	}
	if n.o.Activations != cpu.Bits15 {
		return errors.Join(usage.Errorf("--activations %s is for the CPU: a GPU multiplies activations that are not rounded; use --backend cpu", n.o.Activations), b.Close())
	}
	slog.Info("using Metal", "device", b.Name(), "recommended_memory", units.Bytes(b.WorkingSet()))
	n.gpu = gpuMemory{bytes: b.WorkingSet(), cure: groupplan.RaiseWiredLimit}
	n.useGPU(b, metal.Kernels(b))
	return n.placeOnGPU()
}

// GPU is the backend of a GPU.
type GPU interface {
	kernels.Backend
	Info() gpu.Info
	Counts() gpu.Counts
	Prepare(u kernels.Uses) error
	DeviceTime() (time.Duration, bool)
	Pipelines() int
	WeightBuffers() (held, own int)
}

// useGPU lets a GPU compute.
func (n *Node) useGPU(b kernels.Backend, kernels string) {
	n.Backend, n.Kernels = b, kernels
	n.GPU, _ = b.(GPU) // the backends of builds without them have no such methods
}

// gpuMemory is the memory of the GPU that computes.
type gpuMemory struct {
	bytes int64  // that it may use, 0 without a GPU
	own   bool   // it is not a part of the host's memory
	cure  string // how it can use more
}

// SystemMemory is the memory that the model can have: the host's, or what the GPU that
// computes may use, of the host's or of its own.
func (n *Node) SystemMemory() (host.Memory, bool) {
	if n.gpu.own {
		return host.Memory{Total: n.gpu.bytes, Available: n.gpu.bytes}, true
	}
	m, known := host.ReadMemory()
	return m.Within(n.gpu.bytes, known)
}

// withGPULimit adds to an error of planning or allocation that the GPU's limit, not the
// host's memory, is what binds, and how to raise it.
func (n *Node) withGPULimit(err error) error {
	m, known := host.ReadMemory()
	if err == nil || n.gpu.bytes == 0 || !n.gpu.own && known && m.Total <= n.gpu.bytes {
		return err
	}
	if n.gpu.own {
		return fmt.Errorf("%w (the GPU has %s free; %s)", err, units.Bytes(n.gpu.bytes), n.gpu.cure)
	}
	return fmt.Errorf("%w (the GPU may use %s of this host's %s; %s)", err, units.Bytes(n.gpu.bytes), units.Bytes(m.Total), n.gpu.cure)
}
