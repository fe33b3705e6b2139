package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/groupplan"
	"ringmaster/internal/host"
	"ringmaster/internal/program"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// groupGrace is the time for shutting down a group: Ctrl-C must end all ranks in
// less than two seconds.
const groupGrace = time.Second

// leaderGroup is the group that this process leads.
type leaderGroup struct {
	planner *groupplan.Planner
	leader  *cluster.Leader
	program *replica.Program
	steps   *replica.Leader // the model of all ranks
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
	return errors.Join(g.program.Close(ctx), g.planner.Close())
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
	g := &leaderGroup{planner: groupplan.NewPlanner(o.planOptions(l.file, sequences), l.log)}
	g.program = replica.NewProgram(l, g.planner)
	cfg.Transport = g.program.Transport(cfg.Transport)
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
	planned := g.planner.Last()
	l.heap, l.atMost = planned.Heap, planned.AtMost
	g.steps = replica.NewLeader(g.program, g.leader)
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
	worker := replica.NewWorker(o.cluster.rank, l)
	cfg.Transport = worker.Transport(cfg.Transport)
	err = cluster.Follow(ctx, cfg, worker)
	end, cancel := context.WithTimeout(context.Background(), groupGrace/2)
	defer cancel()
	l.free(worker.Close(end))
	return err
}

// clusterConfig returns the configuration of this rank in the cluster, with the
// hello in which it describes itself.
func (o *modelOptions) clusterConfig(ctx context.Context, l *loaded) (cluster.Config, error) {
	var free int64 // 0: unknown
	if mem, known := systemMemory(); known {
		free = mem.Available
	}
	hash, err := program.Hash()
	if err != nil {
		return cluster.Config{}, err
	}
	hello := cluster.Hello{
		Rank: o.cluster.rank, Size: o.cluster.size, Build: program.Version(), Program: hash, Platform: program.Platform(), Commit: program.CleanCommit(), ByteOrder: byteOrder(),
		Model: o.path, Fingerprint: gguf.Fingerprint(l.file), Weights: gguf.WeightSample(l.file),
		Kernels: l.kernels, Math: l.math, Threads: l.threads, Memory: free, OwnMemory: o.memory.bytes,
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

// Load implements replica.Host: it opens the model for the settings of the group.
func (l *loaded) Load(s replica.Settings, _ int) (replica.Rank, error) {
	m, err := arch.Open(l.file, l.backend, decoder.OpenOptions{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: s.Reduce})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Measure implements replica.Host.
func (l *loaded) Measure(ctx context.Context, g *distributed.Group, rank replica.Rank, p parallel.Placement) (calibrate.Costs, error) {
	start := time.Now()
	costs, err := calibrate.Measure(ctx, g, rank, l.record, p, calibrate.Standard())
	if err == nil && g.Rank() == 0 {
		slog.Info("the group has been measured", "duration", time.Since(start).Round(time.Millisecond))
	}
	return costs, err
}

// ResidentBytes implements replica.Host.
func (l *loaded) ResidentBytes() int64 { return host.ResidentBytes() }
