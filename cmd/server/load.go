package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/builtin"
	"ringmaster/model/deepseek4"
	"ringmaster/moe"
)

// modelOptions are the flags of every command that opens a model.
type modelOptions struct {
	path       string
	ctx        int
	threads    int
	batch      int
	reduce     string
	simd       string
	overcommit bool
}

func (o *modelOptions) register(f *pflag.FlagSet) {
	f.StringVarP(&o.path, "model", "m", "", "GGUF `file` (the first part of a split one); without it the built-in model")
	f.IntVarP(&o.ctx, "ctx", "c", 0, "most tokens of a sequence; 0 is what the file allows and memory holds")
	f.IntVarP(&o.threads, "threads", "t", 0, "threads of the CPU kernels; 0 is one for each core")
	f.IntVar(&o.batch, "max-batch", deepseek4.DefaultMaxTokens, "most tokens of one step")
	f.StringVar(&o.reduce, "reduce", "sum", "how expert outputs are added: sum, or exact (rounded to float16 each, the same on any number of machines)")
	f.StringVar(&o.simd, "simd", "auto", "instructions of the CPU kernels: auto, portable, avx2 or avx512; the last bits of results differ between them")
	f.BoolVar(&o.overcommit, "overcommit", false, "start even if the plan needs more memory than is free")
}

// openFile opens the model file, or the built-in one.
func (o *modelOptions) openFile() (*gguf.File, error) {
	if o.path == "" {
		return builtin.Open()
	}
	return gguf.Open(o.path)
}

// loaded is a model with what it stands on.
type loaded struct {
	file    *gguf.File
	backend *cpu.Backend
	model   model.Model
	took    time.Duration
}

// load opens the file, prints the plan to w, checks it against the machine and
// loads the model. sequences is how many are held at once, for the plan.
func (o *modelOptions) load(w io.Writer, sequences int) (*loaded, error) {
	start := time.Now()
	reduce, err := moe.ParseReduce(o.reduce)
	if err != nil {
		return nil, fmt.Errorf("--reduce: %w", err)
	}
	level, err := cpu.ParseLevel(o.simd)
	if err != nil {
		return nil, fmt.Errorf("--simd: %w", err)
	}
	if o.batch < 1 {
		return nil, fmt.Errorf("--max-batch is %d; expected 1 or more", o.batch)
	}
	if o.ctx < 0 {
		return nil, fmt.Errorf("--ctx is %d; expected 0 or more", o.ctx)
	}
	l := &loaded{}
	if l.file, err = o.openFile(); err != nil {
		return nil, err
	}
	context, err := o.fit(l.file, w, sequences)
	if err != nil {
		l.close()
		return nil, err
	}
	if l.backend, err = cpu.NewLevel(o.threads, level); err != nil {
		l.close()
		return nil, err
	}
	m, err := deepseek4.Open(l.file, l.backend, deepseek4.Options{Context: context, MaxTokens: o.batch, Reduce: reduce})
	if err != nil {
		l.close()
		return nil, err
	}
	l.model = m
	l.took = time.Since(start)
	return l, nil
}

// fit plans the memory, prints the plan and refuses what does not fit. A
// context that was not asked for is halved until it fits.
func (o *modelOptions) fit(f *gguf.File, w io.Writer, sequences int) (int, error) {
	plan, err := deepseek4.NewPlan(f, o.ctx, o.batch, sequences)
	if err != nil {
		return 0, err
	}
	if o.ctx > plan.Config.Context {
		return 0, fmt.Errorf("--ctx is %d; %s allows at most %d", o.ctx, f.Path(), plan.Config.Context)
	}
	mem, known := systemMemory()
	fits := func(p deepseek4.Plan) bool { return !known || o.overcommit || p.Need() <= mem.available }
	for o.ctx == 0 && !fits(plan) && plan.Context > 4096 {
		if plan, err = deepseek4.NewPlan(f, plan.Context/2, o.batch, sequences); err != nil {
			return 0, err
		}
	}
	if err := plan.Write(w); err != nil {
		return 0, err
	}
	if o.ctx == 0 && plan.Context < plan.Config.Context {
		fmt.Fprintf(w, "context limited to %d tokens of the file's %d by the %s of free memory\n",
			plan.Context, plan.Config.Context, deepseek4.Bytes(mem.available))
	}
	switch {
	case !fits(plan):
		return 0, fmt.Errorf("%s needs %s for buffers and one sequence of %d tokens; %s of memory are free. Use a smaller --ctx or --max-batch, or --overcommit to try all the same",
			f.Path(), deepseek4.Bytes(plan.Need()), plan.Context, deepseek4.Bytes(mem.available))
	case known && !o.overcommit && plan.Weights()+plan.Need() > mem.total:
		return 0, fmt.Errorf("%s has %s of weights and needs %s besides; the machine has %s, so every token would read from disk. Share the experts over more machines, or use --overcommit to run all the same",
			f.Path(), deepseek4.Bytes(plan.Weights()), deepseek4.Bytes(plan.Need()), deepseek4.Bytes(mem.total))
	}
	return plan.Context, nil
}

func (l *loaded) close() {
	if l.model != nil {
		l.model.Close()
	}
	if l.backend != nil {
		l.backend.Close()
	}
	if l.file != nil {
		l.file.Close()
	}
}
