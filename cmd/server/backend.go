package main

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"ringmaster/internal/host"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/kernels/cpu"
	"ringmaster/metal"
)

// openBackend opens the backend that the flags select and stores it in l. Where the
// host has no GPU that can run the kernels, auto takes the CPU and logs why; any
// other failure is an error.
func (o *modelOptions) openBackend(l *loaded) error {
	switch o.backend {
	case "cpu":
		return o.openCPU(l)
	case "metal":
		return o.openMetal(l)
	case "auto":
		if !metal.Available {
			return o.openCPU(l)
		}
		err := o.openMetal(l)
		var unsuitable *metal.UnsuitableError
		if errors.As(err, &unsuitable) {
			slog.Warn("computing on the CPU: there is no suitable GPU", "error", unsuitable)
			return o.openCPU(l)
		}
		return err
	}
	return usage.Errorf("--backend is %q; expected auto, cpu or metal", o.backend)
}

func (o *modelOptions) openCPU(l *loaded) error {
	threads := o.threads
	if quota := host.CPUQuota(); threads == 0 && quota > 0 {
		// More threads than the quota pays for only wait for each other.
		threads = min(quota, runtime.NumCPU())
	}
	b, err := cpu.NewLevel(threads, o.simd)
	if err != nil && !slices.Contains(cpu.Levels(), o.simd) {
		return usage.Wrap(err)
	}
	if err != nil {
		return err
	}
	l.backend, l.cpu, l.kernels, l.math, l.threads = b, b, "cpu "+o.simd.SameBits().String(), cpu.MathBits(), b.Threads()
	return nil
}

func (o *modelOptions) openMetal(l *loaded) error {
	b, err := metal.Open(metal.Options{KeepWired: o.keepWired, Progress: func(done, of int) {
		slog.Info("compiling Metal kernels", "libraries", fmt.Sprintf("%d of %d", done, of))
	}})
	if err != nil {
		if o.backend == "auto" {
			err = fmt.Errorf("%w; use --backend cpu to run on the CPU instead", err)
		}
		var unsuitable *metal.UnsuitableError
		if errors.As(err, &unsuitable) {
			return usage.Wrap(err) // of --backend metal; with auto another is taken
		}
		return err
	}
	slog.Info("using Metal", "device", b.Name(), "recommended_memory", units.Bytes(b.WorkingSet()))
	gpuMemory.Store(b.WorkingSet())
	l.backend, l.kernels = b, metal.Kernels(b)
	return nil
}
