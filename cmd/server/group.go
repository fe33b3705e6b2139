package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/internal/host"
	"ringmaster/internal/program"
	"ringmaster/internal/units"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// groupGrace is the time for shutting down a group: Ctrl-C must end all ranks in
// less than two seconds.
const groupGrace = time.Second

// leaderGroup is the group that this process leads.
type leaderGroup struct {
	costs   *groupCosts // what was measured; freed with the group
	leader  *cluster.Leader
	program *replica.Program
	steps   *replica.Leader                // the model of all ranks
	running atomic.Pointer[replica.Leader] // steps, for plans

	plan atomic.Pointer[replica.Settings] // of the last epoch that was planned
}

// planned returns the settings of the last epoch that was planned; they are empty
// before the first.
func (g *leaderGroup) planned() replica.Settings {
	if s := g.plan.Load(); s != nil {
		return *s
	}
	return replica.Settings{}
}

// leave ends the group: all ranks are told why, and the current step fails.
func (g *leaderGroup) leave(why error) {
	if why == nil {
		why = errors.New("rank 0 has finished")
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupGrace/2)
	defer cancel()
	if err := g.leader.Close(ctx, why.Error()); err != nil {
		slog.Warn("shutting down the group failed", "error", err)
	}
}

// close ends the group, if leave has not, and frees this rank's model. An error
// means that a step is still using the model.
func (g *leaderGroup) close() error {
	g.leave(nil)
	ctx, cancel := context.WithTimeout(context.Background(), groupGrace/2)
	defer cancel()
	return errors.Join(g.program.Close(ctx), g.costs.close())
}

// lead forms the group as its rank 0 and loads the model on all ranks.
func (o *modelOptions) lead(ctx context.Context, l *loaded, sequences int) error {
	if o.cluster.rank != 0 {
		return fmt.Errorf("--rank %d: this command runs on rank 0; start the other ranks with serve", o.cluster.rank)
	}
	cfg, err := o.clusterConfig(ctx, l)
	if err != nil {
		return err
	}
	g := &leaderGroup{costs: &o.costs}
	g.program = replica.NewProgram(l.openRank, func(members []cluster.Hello) (replica.Settings, error) {
		var held int64
		if steps := g.running.Load(); steps != nil {
			held = steps.Held()
			o.costs.run()
		}
		s, err := o.planGroup(l.file, members, l.log, sequences, held)
		if err == nil {
			g.plan.Store(&s)
		}
		return s, err
	})
	g.program.Fitting(func(members []cluster.Hello) error {
		var held int64
		if steps := g.running.Load(); steps != nil {
			held = steps.Held()
		}
		return o.fitsGroup(l.file, members, sequences, held)
	})
	g.program.Reading(func(s replica.Settings, i int, before *parallel.Part) int64 {
		return o.freshBytes(l.file, s, i, before)
	})
	g.program.Using(host.ResidentBytes)
	cfg.Transport = g.program.Choosing(cfg.Transport, o.choose(l))
	if o.cluster.serves {
		cfg.Examine = o.examine
	}
	if g.leader, err = cluster.Lead(ctx, cfg, g.program); err != nil {
		return err
	}
	l.group = g
	o.leading.Store(g.leader)
	if err := g.leader.Wait(ctx); err != nil {
		g.leave(err)
		return err
	}
	l.heap, l.atMost = o.planned, o.plannedAtMost
	g.steps = replica.NewLeader(g.program, g.leader)
	g.running.Store(g.steps)
	l.model = g.steps
	return nil
}

// follow is serve on the other ranks: it runs the leader's steps until the group
// ends.
func (o *modelOptions) follow(ctx context.Context) error {
	l, err := o.open(ctx)
	if err != nil {
		return err
	}
	cfg, err := o.clusterConfig(ctx, l)
	if err != nil {
		l.close()
		return err
	}
	worker := replica.NewWorker(o.cluster.rank, l.openRank)
	worker.Using(host.ResidentBytes)
	cfg.Transport = worker.Choosing(cfg.Transport, o.choose(l))
	err = cluster.Follow(ctx, cfg, worker)
	end, cancel := context.WithTimeout(context.Background(), groupGrace/2)
	defer cancel()
	l.free(worker.Close(end))
	return err
}

// clusterConfig returns the configuration of this rank in the cluster, with the
// hello in which it describes itself.
func (o *modelOptions) clusterConfig(ctx context.Context, l *loaded) (cluster.Config, error) {
	offered, err := units.ParseBytes(o.cluster.memory)
	if err != nil {
		return cluster.Config{}, fmt.Errorf("--offer-memory: %w", err)
	}
	if mem, known := systemMemory(); offered == 0 && known {
		offered = mem.Available
	}
	limit, err := o.memoryFlag()
	if err != nil {
		return cluster.Config{}, err
	}
	hash, err := program.Hash()
	if err != nil {
		return cluster.Config{}, err
	}
	hello := cluster.Hello{
		Rank: o.cluster.rank, Size: o.cluster.size, Build: program.Version(), Program: hash, Platform: program.Platform(), Commit: program.CleanCommit(), ByteOrder: byteOrder(),
		Model: o.path, Fingerprint: gguf.Fingerprint(l.file), Weights: gguf.WeightSample(l.file),
		Kernels: l.kernels, Math: l.math, Threads: l.threads, Memory: offered, OwnMemory: limit,
	}
	if hello.Model == "" {
		hello.Model = builtin.Name
	}
	if o.cluster.verify {
		if hello.Content, err = gguf.ContentHash(ctx, l.file, nil); err != nil {
			return cluster.Config{}, err
		}
	}
	if hello.ReadRate, err = o.readRate(); err != nil {
		return cluster.Config{}, err
	}
	cfg, err := o.cluster.config(hello)
	if err != nil {
		return cfg, err
	}
	return cfg, o.cluster.setTransport(&cfg)
}

func byteOrder() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "little"
	}
	return "big"
}

// openRank loads the model of this rank for the settings of the group.
func (l *loaded) openRank(s replica.Settings, _ int) (replica.Rank, error) {
	reduce, err := parallel.ParseReduce(s.Reduce)
	if err != nil {
		return nil, err
	}
	wire, err := parallel.ParseWire(s.Wire)
	if err != nil {
		return nil, err
	}
	m, err := arch.Open(l.file, l.backend, decoder.OpenOptions{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: reduce, Wire: wire})
	if err != nil {
		return nil, err
	}
	return m, nil
}
