package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/internal/flags"
	"ringmaster/internal/forecast"
	"ringmaster/internal/usage"
	"ringmaster/internal/verify"
	"ringmaster/kernels/cpu"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/node"
)

// groupChecks are the flags by which verify examines a group from within.
type groupChecks struct {
	cluster     clusterOptions // coordinator, keyFile and encrypt
	recompute   bool
	soak, pause time.Duration
	rest        float64
	link        forecast.Link
	seed        uint64
	model       node.Options // file, threads and level
}

func (o *groupChecks) register(f *pflag.FlagSet) {
	flags.Address(f, &o.cluster.Coordinator, "coordinator", "", "examine the group of the leader at `HOST:PORT`: ranks and links")
	flags.File(f, &o.cluster.keyFile, "cluster-key-file", "`file` with the secret that all ranks share")
	o.cluster.registerEncrypt(f)
	flags.Bool(f, &o.recompute, "recompute", true, "with --coordinator, compute each rank's part of the model on another rank too")
	flags.Duration(f, &o.soak, "soak", 2*time.Second, flags.Within(0, time.Hour), "with --coordinator, how long data is sent over each link in each direction; 0 is not at all")
	flags.Typed(f, &o.link, "link", "", forecast.LinkForm, forecast.ParseLink, "what is expected of a link, as for plan: `NAME`, or a rate with a latency such as 3GB/s,20us")
	flags.Duration(f, &o.pause, "pause", 100*time.Millisecond, flags.Within(time.Millisecond, 5*time.Second), "how long requests to the group should wait at once for what it examines")
	flags.Float(f, &o.rest, "rest", 1, flags.Within(0.0, 1000.0), "by which factor of such a pause the group is left alone after it; 0: not at all")
	flags.File(f, &o.model.File.Path, "model,m", "the model's GGUF `file` on this host, which then decides which rank is wrong")
	flags.Int(f, &o.model.Threads, "threads,t", 0, flags.Within(0, mostThreads), "threads of this host's kernels with --model; 0 is one per core")
	flags.WordOf(f, &o.model.Level, "simd", "auto", simdWords, cpu.ParseLevel, "their instruction set: auto, portable, avx2, avx512, amx or neon, that of the ranks, for results to be compared")
	flags.Seed(f, &o.seed, "seed", 0, "of the data; 0 is another each time")
}

// check validates the flags; given are those of the command line.
func (o *groupChecks) check(given func(name string) bool) error {
	if o.cluster.Coordinator == "" {
		for _, name := range []string{"cluster-key-file", "recompute", "soak", "link", "pause", "rest", "model", "seed"} {
			if given(name) {
				return usage.Errorf("--%s examines a group: give --coordinator HOST:PORT, where rank 0 listens for the other ranks", name)
			}
		}
		return nil
	}
	switch {
	case o.cluster.checkEncrypt() != nil:
		return usage.Wrap(o.cluster.checkEncrypt())
	case !o.recompute && o.soak == 0:
		return usage.Errorf("--recompute=false and --soak 0 leave nothing to examine of the group; leave --coordinator out")
	}
	return nil
}

// run examines the group and adds to the report. An error means that it could not be
// examined.
func (o *groupChecks) run(ctx context.Context, r *verify.Report, limit time.Duration, progress io.Writer) error {
	key, err := o.cluster.key()
	if err != nil {
		return usage.Wrap(err)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	r.Coordinator, r.Seed = o.cluster.Coordinator, o.seed
	host, close, err := o.arbiter(ctx)
	if err != nil {
		return err
	}
	defer close()
	conn, err := cluster.Examine(ctx, cluster.Config{Coordinator: o.cluster.Coordinator, Key: key, Encrypt: o.cluster.Encrypt.TCP()})
	if err != nil {
		return err
	}
	defer conn.Close()
	x := &verify.Examination{Asker: conn, Limit: limit, Pause: o.pause, Rest: o.rest, Progress: func(text string) { fmt.Fprintln(progress, text) }}
	g, err := x.Look(ctx)
	if err != nil {
		return err
	}
	r.Group, r.Reduce = &g, g.Reduce
	if r.Model == "" {
		r.Model = g.Model
	}
	if host != nil && host.fingerprint != g.Fingerprint {
		return usage.Errorf("--model %s: another model than that of the group, whose fingerprint is %s; here it is %s", o.model.File.Path, g.Fingerprint, host.fingerprint)
	}
	if o.recompute {
		var arbiter verify.Arbiter
		kernels := ""
		if host != nil {
			arbiter, kernels = host, host.kernels
		}
		c, differences, err := x.Recompute(ctx, arbiter, kernels, o.seed)
		if err != nil {
			return err
		}
		r.Differences = differences
		r.Add(c)
	}
	if o.soak > 0 {
		return o.soakLinks(ctx, r, x)
	}
	return nil
}

// soakLinks adds the check of the links. A link that breaks is a failure of the check.
func (o *groupChecks) soakLinks(ctx context.Context, r *verify.Report, x *verify.Examination) error {
	if o.link.Rate > 0 {
		r.Expected = &verify.Expected{Name: o.link.String(), Rate: o.link.Rate, Latency: o.link.Latency}
	}
	c, links, err := x.Soak(ctx, o.soak, r.Expected, o.seed)
	r.Links = links
	if err != nil && (ctx.Err() != nil || len(links) == 0) {
		return err
	}
	if err != nil {
		c.Verdict, c.Detail = verify.Fail, fmt.Sprintf("%v", err)
	}
	r.Add(c)
	return nil
}

// arbiterHost is a copy of the model on the host that verifies.
type arbiterHost struct {
	decoder.Decoder
	fingerprint, kernels string
}

// arbiter opens the model of --model, and returns nil without one. It needs no memory for
// it beyond what is mapped.
func (o *groupChecks) arbiter(ctx context.Context) (h *arbiterHost, end func(), err error) {
	if o.model.File.Path == "" {
		return nil, func() {}, nil
	}
	o.model.Backend = node.CPUBackend
	n := node.New(o.model)
	if err = n.Open(ctx); err != nil {
		return nil, nil, err
	}
	d, err := arch.Open(n.File, n.Backend, decoder.OpenOptions{Context: 2, MaxTokens: 64})
	if err != nil {
		n.Close()
		return nil, nil, usage.Wrap(err)
	}
	n.Model = d
	return &arbiterHost{d, gguf.Fingerprint(n.File), n.Kernels}, n.Close, nil
}
