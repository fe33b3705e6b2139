package main

import (
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/units"
	"ringmaster/kernels/cpu"
	"ringmaster/node"
	"ringmaster/parallel"
)

// modelOptions are the flags of every command that opens a model.
type modelOptions struct {
	node    node.Options
	memory  memoryLimit
	cluster clusterOptions
}

func (o *modelOptions) register(f *pflag.FlagSet) {
	n := &o.node
	flags.File(f, &n.File.Path, "model,m", "GGUF `file` (the first part of a split file), or what 'ringmaster pull' takes, such as hf:OWNER/REPO:QUANT, which is fetched first and kept; default is the built-in model")
	flags.ParsedList(f, &n.File.Overrides, "override-kv", false, overrideForm, checkOverride, "value of the model's metadata in place of the file's, `KEY=TYPE:VALUE` with TYPE int, float, bool or str, the same on all ranks; may be repeated")
	flags.Int(f, &n.Context, "ctx,c", 0, flags.From(0), "context length in tokens; 0 is the most that the model allows and memory holds")
	flags.Int(f, &n.MaxTokens, "max-batch", 0, flags.From(0), "most tokens in one step; 0 is 2048 on GPUs that compute everything and have room, else 512; beside answers, serve gives at most half of them to prompts")
	flags.Propose(flags.Typed(f, &o.memory, "memory", "", memoryForm, parseMemory, "most memory that the process uses beside the mapped weights, like `20GiB`; empty is what is free, and unlimited starts even if more is needed. The KV caches get what the buffers leave"), "unlimited")
	flags.Under(f, headingModel)
	flags.Int(f, &n.Threads, "threads,t", 0, flags.Within(0, cpu.MaxThreads), "threads of the CPU kernels; 0 is one per core, at most what a CPU quota (cgroup) allows")
	flags.Propose(flags.Typed(f, &n.Compute, "backend", "auto", node.ComputeForm, node.ParseCompute, "compute backend: cpu, metal (the GPU of a Mac), vulkan (a GPU of another host), or auto: a GPU if this build supports it, the host has a suitable one and, with vulkan, there is no group; else cpu. A card with room for all but the routed experts leaves these to the CPU, as vulkan+cpu does in any case; vulkan:10GiB limits what the model takes of its memory"), node.ComputeNames...)
	flags.Duration(f, &n.KeepWired, "keep-wired", 0, flags.FromDuration(0), "how long after the last step the memory of a Mac's GPU is kept wired, so that the next step is not delayed by seconds; 0 is as long as the program runs")
	flags.WordOf(f, &n.Level, "simd", "auto", simdWords, cpu.ParseLevel, "instruction set of the CPU kernels: auto, portable, avx2, avx512, amx or neon; results differ in the last bits, except between avx512 and amx")
	registerActivations(f, &n.Activations, "bits of the activations that quantised weights are multiplied by, on the CPU: 15, or 8, which halves the multiplications where several tokens are computed at a time, and makes logits about as exact as llama.cpp's; the same on all ranks")
	flags.Under(f, headingPerformance)
	flags.WordOf(f, &n.Reduce, "reduce", "sum", reduceWords, parallel.ParseReduce, "how expert outputs are added: sum, or exact (each rounded to float16; the same result on any number of hosts)")
	o.cluster.register(f)
}

func registerActivations(f *pflag.FlagSet, p *cpu.Activations, usage string) {
	flags.WordOf(f, p, "activations", "15", []string{"15", "8"}, cpu.ParseActivations, usage)
}

// options are those of the node, once the flags have been checked.
func (o *modelOptions) options() node.Options {
	n := o.node
	n.Memory, n.Overcommit = o.memory.bytes, o.memory.unlimited
	n.Verify, n.Group = o.cluster.verify, o.cluster.nodeGroup()
	return n
}

// memoryLimit is the value of --memory.
type memoryLimit struct {
	bytes     int64 // 0: the free memory
	unlimited bool  // the free memory is no limit either
}

// parseMemory reads a size, or unlimited.
func parseMemory(s string) (memoryLimit, error) {
	if s == "unlimited" {
		return memoryLimit{unlimited: true}, nil
	}
	n, err := units.ParseBytes(s)
	return memoryLimit{bytes: n}, err
}
