package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ringmaster/api/dialect"
	"ringmaster/distributed/rdma/rails"
	"ringmaster/gguf"
	"ringmaster/internal/doctor"
	"ringmaster/internal/flags"
	"ringmaster/internal/host"
	"ringmaster/internal/program"
	"ringmaster/internal/subprocess"
	"ringmaster/internal/usage"
	"ringmaster/kernels/cpu"
	"ringmaster/metal"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/tokenizer"
)

// defaultSSH asks no questions: a host that wants a password is a finding.
const defaultSSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	model, ssh, program string
	listen              []string
	weights, quick      bool
	asJSON, facts       bool
	limit               time.Duration
	source              *doctor.Source // nil: this host
	run                 func(ctx context.Context, name string, args ...string) (string, error)
	stdout              io.Writer
}

// newDoctor builds the command that examines hosts.
func newDoctor() *cobra.Command {
	o := &doctorOptions{run: subprocess.Run}
	cmd := &cobra.Command{
		Use:   "doctor [HOST...]",
		Short: "Examine this host, or several over ssh, with evidence and cures",
		Long: `Examines this host, or the given ones over ssh, where the program must lie: the
processor's instruction sets, memory and its rate, the model's file and where it
lies, limits, clocks, network, ports, RDMA devices, on a Mac its switches; of
several hosts also what must be the same on all. It changes nothing.

Exit code 0: nothing worse than a note; 3: warnings; 4: errors; 2: the command
cannot work as it was given; 1: it failed.`,
		Example: `  ringmaster doctor --model /models/F.gguf
  ringmaster doctor --model /models/F.gguf --json host1 host2 host3`,
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, hosts []string) error {
			o.stdout = cmd.OutOrStdout()
			return stopped(cmd.Context(), o.examine(cmd.Context(), hosts))
		},
	}
	f := cmd.Flags()
	flags.Text(f, &o.model, "model,m", "", "GGUF `file` to examine (the first part of a split file)")
	flags.Bool(f, &o.weights, "check-weights", false, "read the whole model and check that no weight is NaN or infinite")
	flags.ParsedList(f, &o.listen, "listen", false, addressForm, checkAddress, "`address` that a server or a coordinator shall listen on; may be repeated")
	flags.Bool(f, &o.quick, "quick", false, "do not measure the rate of the memory")
	flags.Bool(f, &o.asJSON, "json", false, "print facts and findings as JSON")
	flags.Text(f, &o.ssh, "ssh", defaultSSH, "`command` that reaches other hosts")
	flags.Text(f, &o.program, "program", "ringmaster", "the program's `path` on other hosts")
	flags.Duration(f, &o.limit, "timeout", 2*time.Minute, flags.AnyDuration(), "longest time for a host; with --check-weights it reads the whole model")
	flags.Bool(f, &o.facts, "facts", false, "print the facts of this host only, for doctor on another one")
	if err := f.MarkHidden("facts"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// examine gathers facts and prints what they show.
func (o *doctorOptions) examine(ctx context.Context, hosts []string) error {
	if err := o.check(hosts); err != nil {
		return err
	}
	if o.source == nil {
		o.source = o.thisHost()
	}
	ask := doctor.Ask{Model: o.model}
	for _, a := range o.listen {
		ask.Ports = append(ask.Ports, doctor.Port{Address: a, Use: "--listen"})
	}
	var report *doctor.Report
	if len(hosts) == 0 {
		h := doctor.Gather(ctx, o.source, ask)
		if o.facts {
			return o.print(h)
		}
		report = doctor.Examine([]doctor.Facts{h})
	} else {
		r := &doctor.Remote{Run: o.run, Command: strings.Fields(o.ssh), Program: o.program, Args: o.remoteArgs(), Limit: o.limit, Now: time.Now}
		all, failed := r.Gather(ctx, hosts)
		report = doctor.Examine(all)
		report.Findings = append(failed, report.Findings...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	write := func() error { return report.Write(o.stdout) }
	if o.asJSON {
		write = func() error { return o.print(report) }
	}
	if err := write(); err != nil {
		return err
	}
	if code := report.ExitCode(); code != 0 {
		return &verdict{code, fmt.Sprintf("doctor: the worst finding is of severity %q", report.Worst())}
	}
	return nil
}

// check refuses what no examination can be made of.
func (o *doctorOptions) check(hosts []string) error {
	for i, h := range hosts {
		if h == "" || h[0] == '-' {
			return usage.Errorf("host %q: expected a name or an address that ssh reaches", h)
		}
		if slices.Contains(hosts[:i], h) {
			return usage.Errorf("host %s is given twice", h)
		}
	}
	if len(hosts) > 0 && (o.facts || len(strings.Fields(o.ssh)) == 0 || o.program == "") {
		return usage.Errorf("hosts need --ssh and --program, and no --facts")
	}
	if o.weights && o.model == "" {
		return usage.Errorf("--check-weights needs --model")
	}
	return nil
}

func (o *doctorOptions) print(v any) error {
	enc := json.NewEncoder(o.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// remoteArgs are the flags of doctor on another host.
func (o *doctorOptions) remoteArgs() []string {
	var args []string
	if o.model != "" {
		args = append(args, "--model="+o.model)
	}
	if o.weights {
		args = append(args, "--check-weights")
	}
	if o.quick {
		args = append(args, "--quick")
	}
	for _, a := range o.listen {
		args = append(args, "--listen="+a)
	}
	return args
}

// thisHost is where the facts of this host come from.
func (o *doctorOptions) thisHost() *doctor.Source {
	hash, _ := program.Hash() // unknown is "", which is compared with nothing
	s := &doctor.Source{
		System: runtime.GOOS, Arch: runtime.GOARCH, Build: program.Version(), Program: hash, Commit: program.CleanCommit(), Math: cpu.MathBits(), Root: os.DirFS("/"), Limit: 20 * time.Second, Now: time.Now,
		Hostname: os.Hostname, Resolve: resolve, Interfaces: doctor.SystemInterfaces, Listen: doctor.Listen, Run: o.run,
		Limits: processLimits, Compute: computes, GPUMemory: gpuMemory.Load, Model: o.examineModel, RDMA: examineRDMA,
		Memory: func() (int64, int64, bool) {
			m, known := host.ReadMemory()
			return m.Total, m.Available, known
		},
	}
	if !o.quick {
		s.Rate = memoryRate
	}
	return s
}

// computes is what this host computes with: the GPU of a Mac, or the processor.
func computes() (backend string, levels []string, processors, quota int, err error) {
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
		backend = metalKernels(gpu)
		gpuMemory.Store(gpu.WorkingSet())
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

// processLimits are those that a server started from here would have.
func processLimits() (files, locked doctor.Limit, err error) {
	read := func(what int) (doctor.Limit, error) {
		var l unix.Rlimit
		err := unix.Getrlimit(what, &l)
		return doctor.Limit{Soft: uint64(l.Cur), Hard: uint64(l.Max)}, err
	}
	if files, err = read(unix.RLIMIT_NOFILE); err != nil {
		return files, locked, err
	}
	locked, err = read(unix.RLIMIT_MEMLOCK)
	return files, locked, err
}

// examineModel opens a model's file and says where it lies.
func (o *doctorOptions) examineModel(ctx context.Context, path string) doctor.Model {
	m := doctor.Model{Path: path, Cached: -1}
	f, err := arch.OpenFile(path)
	if err != nil {
		m.Error, m.Other = err.Error(), otherModel(err)
		return m
	}
	defer f.Close() // nothing is written
	if err := checkModel(f); err != nil {
		m.Error, m.Other = err.Error(), otherModel(err)
		return m
	}
	m.Bytes, m.Parts, m.Fingerprint = f.Size(), len(f.Mappings()), dialect.Describe(f, false).Digest
	m.FileSystem, m.Network = host.FileSystem(path)
	m.Cached = host.CachedShare(f.Mappings())
	if o.weights {
		if err := gguf.CheckWeights(ctx, f, nil); err != nil {
			m.Error = err.Error()
			return m
		}
		m.Checked = true
	}
	return m
}

// otherModel reports whether an error says that a file is sound and this program does not
// run it, so that fetching it again would not help.
func otherModel(err error) bool {
	var file *model.FileError
	var types *gguf.ForeignTypes
	return errors.As(err, &file) || errors.As(err, &types) || errors.Is(err, tokenizer.ErrVocabulary)
}

// examineRDMA is the report of rails here.
func examineRDMA(ctx context.Context) doctor.RDMA {
	r := rails.Here(ctx, "")
	out := doctor.RDMA{Library: r.Library, Devices: []doctor.RDMADevice{}, Notes: r.Notes}
	for i := range r.Devices {
		d := &r.Devices[i]
		out.Devices = append(out.Devices, doctor.RDMADevice{Name: d.Name, State: d.State, Why: rails.Unusable(d)})
	}
	return out
}

// resolve is what a host's name stands for.
func resolve(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}
