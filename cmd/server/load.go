package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/profile"
	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/model/tokenizer"
	"ringmaster/parallel"
)

// modelOptions are the flags of every command that opens a model.
type modelOptions struct {
	path      string
	overrides []string // of the file's metadata, KEY=TYPE:VALUE
	ctx       int
	threads   int
	batch     int
	reduce    parallel.Reduce
	backend   string
	keepWired time.Duration // of the GPU's memory, after the last step; 0: for ever
	simd      cpu.Level
	memory    memoryLimit // bytes that the process may use beside the mapped weights, 0 for what is free
	heap      int64       // for Go's heap, stacks and runtime, but for what depends on the plan; set by serve
	profile   bool        // set by bench: ops can be measured
	expect    bool        // set by bench: a group is measured whatever --share
	tokenizes bool        // set by serve: the vocabulary is used too
	cluster   clusterOptions

	leading atomic.Pointer[cluster.Leader] // of the group that is forming or running
	served  atomic.Pointer[examined]       // by serve on rank 0, once it serves
}

// starting describes the progress before the model is loaded.
func (o *modelOptions) starting() string {
	if l := o.leading.Load(); l != nil {
		if _, err := l.Epoch(); err != nil {
			return err.Error()
		}
	}
	return "the model is loading"
}

func (o *modelOptions) register(f *pflag.FlagSet) {
	flags.File(f, &o.path, "model,m", "GGUF `file` (the first part of a split file); default is the built-in model")
	flags.ParsedList(f, &o.overrides, "override-kv", false, overrideForm, checkOverride, "value of the model's metadata in place of the file's, `KEY=TYPE:VALUE` with TYPE int, float, bool or str, the same on all ranks; may be repeated")
	flags.Int(f, &o.ctx, "ctx,c", 0, flags.From(0), "context length in tokens; 0 is the most that the model allows and memory holds")
	flags.Int(f, &o.batch, "max-batch", decoder.DefaultMaxTokens, flags.From(1), "most tokens in one step, when serving half of them of prompts: with fewer, other requests wait less for a step")
	flags.Typed(f, &o.memory, "memory", "", memoryForm, parseMemory, "most memory that the process uses beside the mapped weights, like `20GiB`; empty is what is free; unlimited starts even if more is needed than is free. What buffers leave is the budget of the KV caches")
	flags.Under(f, headingModel)
	flags.Int(f, &o.threads, "threads,t", 0, flags.Within(0, mostThreads), "threads of the CPU kernels; 0 is one per core, at most what a CPU quota (cgroup) allows")
	flags.OneOf(f, &o.backend, "backend", "auto", backendWords, "compute backend: cpu, metal (the GPU of a Mac), or auto: metal if this build supports it and the host has a suitable GPU, else cpu")
	flags.Duration(f, &o.keepWired, "keep-wired", 0, flags.FromDuration(0), "how long after the last step the memory of a Mac's GPU is kept wired, so that the next step is not delayed by seconds; 0 is as long as the program runs")
	flags.WordOf(f, &o.simd, "simd", "auto", simdWords, cpu.ParseLevel, "instruction set of the CPU kernels: auto, portable, avx2, avx512, amx or neon; results differ in the last bits, except between avx512 and amx")
	flags.Under(f, headingPerformance)
	flags.WordOf(f, &o.reduce, "reduce", "sum", reduceWords, parallel.ParseReduce, "how expert outputs are added: sum, or exact (each rounded to float16; the same result on any number of hosts)")
	o.cluster.register(f)
}

// openFile opens the model file, or the built-in one.
func (o *modelOptions) openFile() (*gguf.File, error) {
	open := builtin.Open
	if o.path != "" {
		open = func() (*gguf.File, error) { return arch.OpenFile(o.path) }
	}
	f, err := open()
	if err != nil {
		return nil, arch.Explain(err)
	}
	return o.override(f)
}

// openVocabulary is openFile for a file of which only the vocabulary is used: it may have
// no tensors, and is then of any architecture.
func (o *modelOptions) openVocabulary() (*gguf.File, error) {
	if o.path == "" {
		return o.openFile()
	}
	f, err := gguf.Open(o.path)
	if err == nil && len(f.Tensors()) == 0 {
		return o.override(f)
	}
	if err == nil {
		if err = f.Close(); err != nil {
			return nil, err
		}
	}
	return o.openFile() // a file that does not open is named there, by its architecture first
}

// override applies --override-kv to a file, which is closed after an error.
func (o *modelOptions) override(f *gguf.File) (*gguf.File, error) {
	for _, text := range o.overrides {
		was, err := f.Override(text)
		if err != nil {
			return nil, errors.Join(usage.Errorf("--override-kv: %s: %w", f.Path(), err), f.Close())
		}
		slog.Info("the model's metadata is overridden", "override", text, "previous", was)
	}
	return f, nil
}

// checkInterval is the time between two log lines of a check of the weights.
const checkInterval = 10 * time.Second

// checkWeights checks all weights of a file, and logs how far it is and how long it
// took.
func checkWeights(ctx context.Context, f *gguf.File) error {
	start, last := time.Now(), time.Now()
	var size int64
	err := gguf.CheckWeights(ctx, f, func(done, total int64) {
		size = total
		if time.Since(last) >= checkInterval {
			last = time.Now()
			slog.Info("checking the weights", "done", units.Bytes(done), "total", units.Bytes(total))
		}
	})
	if err != nil {
		return fmt.Errorf("--verify-model: %w", err)
	}
	slog.Info("all weights are finite numbers", "size", units.Bytes(size), "duration", time.Since(start).Round(time.Millisecond))
	return nil
}

// loaded is a model with the resources that it uses.
type loaded struct {
	file    *gguf.File
	backend kernels.Backend
	profile *profile.Switch // within backend; nil unless requested
	record  *record.Backend // the same as backend; nil without a group
	cpu     *cpu.Backend    // backend or wrapped by it; nil on a GPU
	kernels string          // must be the same on all ranks, for identical bits
	math    string          // cpu.MathBits, likewise; "" on a GPU
	threads int             // of the CPU kernels, 0 on a GPU
	model   model.Model
	group   *leaderGroup         // nil without a group
	tokens  *tokenizer.Tokenizer // of the file, if o.tokenizes
	took    time.Duration
	log     io.Writer      // for the memory plan
	heap    int64          // of the plan, for Go
	atMost  int64          // of the plan, beside the mapped weights
	sizes   parallel.Sizes // of the model that this host runs alone
}

// load opens the file, prints the memory plan to w, checks it against the memory of
// the host and loads the model: on rank 0 of a group, together with the other ranks.
// sequences is how many sequences are held at once.
func (o *modelOptions) load(ctx context.Context, w io.Writer, sequences int) (*loaded, error) {
	start := time.Now()
	l, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	l.log = w
	if o.cluster.on {
		err = o.lead(ctx, l, sequences)
	} else {
		err = withWiredLimit(o.alone(l, sequences))
	}
	if err != nil {
		l.close()
		return nil, err
	}
	l.took = time.Since(start)
	return l, nil
}

// open opens the file and the backend, and with --verify-model
// checks the file.
func (o *modelOptions) open(ctx context.Context) (*loaded, error) {
	l := &loaded{}
	var err error
	if l.file, err = o.openFile(); err != nil {
		return nil, err
	}
	if o.tokenizes { // before the time that loading takes
		if l.tokens, err = tokenizer.FromGGUF(l.file); err != nil {
			l.close()
			return nil, usage.Wrap(err)
		}
	}
	if o.cluster.verify {
		if err = checkWeights(ctx, l.file); err != nil {
			l.close()
			return nil, err
		}
	}
	if err = o.openBackend(l); err != nil {
		l.close()
		return nil, err
	}
	if o.profile {
		l.profile = profile.NewSwitch(l.backend, time.Now)
		l.backend = l.profile
	}
	if o.cluster.on {
		l.record = record.Wrap(l.backend)
		l.backend = l.record
	}
	return l, nil
}

// planOptions are the options of a plan that the flags determine.
func (o *modelOptions) planOptions(f *gguf.File, sequences int) groupplan.Options {
	p := groupplan.Options{Model: f, Sequences: sequences, Context: o.ctx, MaxTokens: o.batch, Reduce: o.reduce,
		Overcommit: o.memory.unlimited, Heap: max(o.heap, groupplan.LeastHeap), Measure: o.expect}
	if o.cluster.on {
		p.Share = o.cluster.share
	}
	return p
}

// alone loads the whole model on this host.
func (o *modelOptions) alone(l *loaded, sequences int) error {
	memory, known := systemMemory()
	plan, text, err := o.planOptions(l.file, sequences).Alone(groupplan.Room{Memory: memory, Known: known, Limit: o.memory.bytes, Threads: l.threads})
	if _, printed := io.WriteString(l.log, text); err == nil {
		err = printed
	}
	if err != nil {
		return err
	}
	l.heap, l.atMost = plan.Heap, plan.AtMost()
	m, err := arch.Open(l.file, l.backend, decoder.OpenOptions{Context: plan.Context, MaxTokens: o.batch, Reduce: o.reduce, SequenceBudget: plan.Budget})
	if err != nil {
		return err
	}
	l.model, l.sizes = m, plan.Sizes
	return nil
}

// close ends the group, if there is one, and frees the model.
func (l *loaded) close() {
	var stuck error
	if l.group != nil {
		stuck = l.group.close()
	} else if l.model != nil {
		stuck = l.model.Close()
	}
	l.free(stuck)
}

// free frees the resources of the model, unless a step still uses them: then they
// are freed when the process exits.
func (l *loaded) free(stuck error) {
	if stuck != nil {
		slog.Warn("a step is still running at exit", "error", stuck)
		return
	}
	if l.backend != nil {
		l.backend.Close()
	}
	if l.file != nil {
		l.file.Close()
	}
}
