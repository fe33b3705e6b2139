package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ringmaster/distributed/rdma/rails"
	"ringmaster/gguf"
	"ringmaster/internal/host"
	"ringmaster/internal/program"
	"ringmaster/internal/subprocess"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/vulkan"
	"ringmaster/metal"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/tokenizer"
)

// here returns the source of this host's facts.
func (o *Options) here() *Source {
	hash, _ := program.Hash() // if unknown it is "", which equals nothing
	gpu := int64(0)
	s := &Source{
		System: runtime.GOOS, Arch: runtime.GOARCH, Build: program.Version(), Program: hash, Commit: program.CleanCommit(), Math: cpu.MathBits(), Root: os.DirFS("/"), Limit: 20 * time.Second, Now: time.Now,
		Hostname: os.Hostname, Resolve: Resolve, Interfaces: SystemInterfaces, Listen: Listen, Run: subprocess.Run,
		Limits: processLimits, Compute: func() (string, []string, int, int, error) { return computes(&gpu) }, GPUMemory: func() int64 { return gpu }, Model: o.examineModel, RDMA: examineRDMA, Vulkan: examineVulkan,
		Memory: func() (int64, int64, bool) {
			m, known := host.ReadMemory()
			return m.Total, m.Available, known
		},
	}
	if !o.Quick {
		s.Rate = memoryRate
	}
	return s
}

// computes returns what this host computes with: the processor, or the GPU of a Mac with
// its memory in memory.
func computes(memory *int64) (backend string, levels []string, processors, quota int, err error) {
	for _, l := range slices.Backward(cpu.Levels()) {
		levels = append(levels, l.String())
	}
	processors, quota = runtime.NumCPU(), host.CPUQuota()
	backend = "none"
	if len(levels) > 0 {
		level, err := cpu.ParseLevel("auto")
		if err != nil {
			return backend, levels, processors, quota, err
		}
		backend = "cpu " + level.SameBits().String()
	}
	if metal.Available {
		gpu, err := metal.Open(metal.Options{})
		if err != nil {
			return backend, levels, processors, quota, fmt.Errorf("the GPU: %w", err)
		}
		backend = metal.Kernels(gpu)
		*memory = gpu.WorkingSet()
		return backend, levels, processors, quota, gpu.Close()
	}
	return backend, levels, processors, quota, nil
}

// memoryRate measures how fast all processors read the memory, in bytes a second: the
// best of a few passes.
func memoryRate(ctx context.Context) (float64, error) {
	m, known := host.ReadMemory()
	if !known {
		return 0, fmt.Errorf("the free memory of this system is unknown")
	}
	b, err := cpu.New(0)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	stream, err := b.NewStream(m.Available)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	best := 0.0
	for range 5 {
		if ctx.Err() != nil {
			return best, context.Cause(ctx)
		}
		best = max(best, stream.Read())
	}
	return best, nil
}

// processLimits returns those that a server started from here would have.
func processLimits() (files, locked Limit, err error) {
	read := func(what int) (Limit, error) {
		var l unix.Rlimit
		err := unix.Getrlimit(what, &l)
		return Limit{Soft: uint64(l.Cur), Hard: uint64(l.Max)}, err
	}
	if files, err = read(unix.RLIMIT_NOFILE); err != nil {
		return files, locked, err
	}
	locked, err = read(unix.RLIMIT_MEMLOCK)
	return files, locked, err
}

// examineModel opens a model's file and describes it and its file system.
func (o *Options) examineModel(ctx context.Context, path string) Model {
	m := Model{Path: path, Cached: -1}
	f, err := arch.OpenFile(path)
	if err != nil {
		m.Error, m.Other = err.Error(), otherModel(err)
		return m
	}
	defer f.Close() // nothing is written
	if err := arch.CheckTensors(f); err != nil {
		m.Error, m.Other = err.Error(), otherModel(err)
		return m
	}
	m.Bytes, m.Parts, m.Fingerprint = f.Size(), len(f.Mappings()), gguf.Digest(f)
	m.FileSystem, m.Network = host.FileSystem(path)
	m.Cached = host.CachedShare(f.Mappings())
	if o.Weights {
		if err := gguf.CheckWeights(ctx, f, nil); err != nil {
			m.Error = err.Error()
			return m
		}
		m.Checked = true
	}
	return m
}

// otherModel reports whether an error means that a file is valid but this program does
// not run it, so that fetching it again would not help.
func otherModel(err error) bool {
	var file *model.FileError
	var types *gguf.ForeignTypes
	return errors.As(err, &file) || errors.As(err, &types) || errors.Is(err, tokenizer.ErrVocabulary)
}

// examineRDMA returns the report of rails here.
func examineRDMA(ctx context.Context) RDMA {
	r := rails.Here(ctx, "")
	out := RDMA{Library: r.Library, Devices: []RDMADevice{}, Notes: r.Notes}
	for i := range r.Devices {
		d := &r.Devices[i]
		out.Devices = append(out.Devices, RDMADevice{Name: d.Name, State: d.State, Why: rails.Unusable(d)})
	}
	return out
}

// examineVulkan returns what Vulkan shows to this program, nil if it was built without.
func examineVulkan() *Vulkan {
	if !vulkan.Available {
		return nil
	}
	v := &Vulkan{Devices: []VulkanDevice{}}
	for _, name := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} { // the loader prefers the first
		if value := os.Getenv(name); value != "" && v.Drivers == "" {
			v.Drivers = name + "=" + value
		}
	}
	all, err := vulkan.Devices()
	var unsuitable *vulkan.UnsuitableError
	if errors.As(err, &unsuitable) {
		v.Error, v.Cure = unsuitable.Reason, unsuitable.Cure
		return v
	}
	for i := range all {
		v.Devices = append(v.Devices, vulkanFacts(&all[i]))
	}
	if n, err := vulkan.Choose(all); err != nil {
		v.Refused = err.Error()
	} else {
		v.Chosen = fmt.Sprintf("%d, %s", n, all[n].Name)
	}
	return v
}

func vulkanFacts(d *vulkan.Description) VulkanDevice {
	kind := d.Kind.String()
	if d.Kind == vulkan.CPU {
		kind = softwareKind
	}
	v := VulkanDevice{
		Name: d.Name, Kind: kind, Driver: d.Driver, Version: d.Version, Missing: d.Missing, Free: d.BudgetKnown, Shared: d.Unified, Visible: int64(d.Visible),
		LargestBuffer: int64(min(d.MaxBuffer, math.MaxInt64)), Workgroup: int(d.Workgroup), SharedMemory: int(d.SharedMemory),
		Subgroups: [2]int{int(d.Subgroups[0]), int(d.Subgroups[1])}, Heaps: []VulkanHeap{},
	}
	for _, h := range d.Heaps {
		v.Heaps = append(v.Heaps, VulkanHeap{int64(h.Bytes), int64(h.Budget), h.Local})
	}
	return v
}

// Resolve returns the addresses that a host's name resolves to.
func Resolve(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}
