package node

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"ringmaster/groupplan"
	"ringmaster/internal/host"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/kernels/cpu"
	"ringmaster/metal"
)

// Backend is what computes.
type Backend uint8

// The backends. AutoBackend is the GPU if this build supports it and the host has a
// suitable one, else the CPU.
const (
	AutoBackend Backend = iota
	CPUBackend
	MetalBackend
)

// ParseBackend reads auto, cpu or metal.
func ParseBackend(s string) (Backend, error) {
	i := slices.Index(BackendNames, s)
	if i < 0 {
		return 0, fmt.Errorf("backend is %q; expected auto, cpu or metal", s)
	}
	return Backend(i), nil
}

// BackendNames are what ParseBackend reads, by Backend.
var BackendNames = []string{"auto", "cpu", "metal"}

// openBackend opens the backend of the options. Where the host has no GPU that can run the
// kernels, AutoBackend takes the CPU and logs why; any other failure is an error.
func (n *Node) openBackend() error {
	switch {
	case n.o.Backend == MetalBackend:
		return n.openMetal()
	case n.o.Backend == CPUBackend || !metal.Available:
		return n.openCPU()
	}
	err := n.openMetal()
	var unsuitable *metal.UnsuitableError
	if errors.As(err, &unsuitable) {
		slog.Warn("computing on the CPU: there is no suitable GPU", "error", unsuitable)
		return n.openCPU()
	}
	return err
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
		if n.o.Backend == AutoBackend {
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
	n.gpu = b.WorkingSet()
	n.Backend, n.Kernels = b, metal.Kernels(b)
	return nil
}

// SystemMemory is the memory that the model can have: the host's, or what the GPU that
// computes may use of it, which is three quarters or so.
func (n *Node) SystemMemory() (host.Memory, bool) {
	m, known := host.ReadMemory()
	return m.Within(n.gpu, known)
}

// withWiredLimit adds to an error of planning or allocation that the GPU's limit, not the
// host's memory, is what binds, and how to raise it.
func (n *Node) withWiredLimit(err error) error {
	m, known := host.ReadMemory()
	if err == nil || n.gpu == 0 || known && m.Total <= n.gpu {
		return err
	}
	return fmt.Errorf("%w (the GPU may use %s of this host's %s; %s)", err, units.Bytes(n.gpu), units.Bytes(m.Total), groupplan.RaiseWiredLimit)
}
