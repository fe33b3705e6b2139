package node

import (
	"context"
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
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// Grace is the time for shutting down a group: Ctrl-C must end all ranks in
// less than two seconds.
const Grace = time.Second

// Leader is the group that a node leads.
type Leader struct {
	*cluster.Leader
	Steps   *replica.Leader    // the model of all ranks
	Planner *groupplan.Planner // of its epochs
	program *replica.Program
	reports reports
}

// Leave ends the group: all ranks are told why, and the current step fails.
func (l *Leader) Leave(why error) {
	if why == nil {
		why = errors.New("rank 0 has finished")
	}
	ctx, cancel := context.WithTimeout(context.Background(), Grace/2)
	defer cancel()
	if err := l.Leader.Close(ctx, why.Error()); err != nil {
		slog.Warn("shutting down the group failed", "error", err)
	}
}

// close ends the group, if Leave has not, and frees this rank's model. An error
// means that a step is still using the model.
func (l *Leader) close() error {
	l.Leave(nil)
	ctx, cancel := context.WithTimeout(context.Background(), Grace/2)
	defer cancel()
	return errors.Join(l.program.Close(ctx), l.Planner.Close())
}

// lead forms the group as its rank 0 and loads the model on all ranks.
func (n *Node) lead(ctx context.Context) error {
	if n.o.Group.Rank != 0 {
		return fmt.Errorf("--rank %d: this command runs on rank 0; start the other ranks with serve", n.o.Group.Rank)
	}
	cfg, err := n.config(ctx)
	if err != nil {
		return err
	}
	l := &Leader{Planner: groupplan.NewPlanner(n.planOptions(), n.o.Plans)}
	n.popular.load(n.o.Popularity, gguf.Fingerprint(n.File))
	l.program = replica.NewProgram(n, l.Planner)
	cfg.Transport = l.program.Transport(cfg.Transport)
	if n.o.Group.Examined {
		cfg.Examine = n.examine
	}
	if l.Leader, err = cluster.Lead(ctx, cfg, l.program); err != nil {
		return err
	}
	n.Leader = l
	n.forming.Store(l.Leader)
	if err := l.Wait(ctx); err != nil {
		l.Leave(err)
		return err
	}
	planned := l.Planner.Last()
	n.Heap, n.AtMost, n.Weights = planned.Heap, planned.AtMost, planned.Ranks[0].ExpertBytes+planned.Ranks[0].DenseBytes
	n.hasBlock = planned.Settings.Block && !planned.Settings.Placement.Staged()
	l.Steps = replica.NewLeader(l.program, l.Leader)
	n.Model = l.Steps
	return nil
}

// Follow is the life of a rank other than 0: it opens the model, runs the leader's steps
// until the group ends, and frees all.
func (n *Node) Follow(ctx context.Context) error {
	if err := n.Open(ctx); err != nil {
		return err
	}
	cfg, err := n.config(ctx)
	if err != nil {
		n.Close()
		return err
	}
	worker := replica.NewWorker(n.o.Group.Rank, n)
	cfg.Transport = worker.Transport(cfg.Transport)
	err = cluster.Follow(ctx, cfg, worker)
	end, cancel := context.WithTimeout(context.Background(), Grace/2)
	defer cancel()
	n.free(worker.Close(end))
	return err
}

// config returns the configuration of this rank in the cluster, with the
// hello in which it describes itself.
func (n *Node) config(ctx context.Context) (cluster.Config, error) {
	hash, err := program.Hash()
	if err != nil {
		return cluster.Config{}, err
	}
	hello := n.o.Group.Hello()
	hello.Program, hello.Platform, hello.Commit = hash, program.Platform(), program.CleanCommit()
	hello.Model, hello.Fingerprint, hello.Weights = n.o.File.Name(), gguf.Fingerprint(n.File), gguf.WeightSample(n.File)
	hello.Kernels, hello.Math, hello.Threads = n.Kernels, n.math, n.Threads
	if hello.OwnMemory, err = n.ownLimit(); err != nil {
		return cluster.Config{}, err
	}
	if m, known := n.offered(); known {
		hello.Memory = m.Available
	}
	if n.o.Verify {
		if hello.Content, err = gguf.ContentHash(ctx, n.File, nil); err != nil {
			return cluster.Config{}, err
		}
	}
	if hello.ReadRate, err = n.o.File.readRate(); err != nil {
		return cluster.Config{}, err
	}
	return n.o.Group.Config(hello), nil
}

// Load implements replica.Host: it opens the model for the settings of the group.
func (n *Node) Load(s replica.Settings, _ int) (replica.Rank, error) {
	m, err := arch.Open(n.File, n.Backend, decoder.OpenOptions{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: s.Reduce, DraftFile: n.blockOf(s.Block)})
	if err != nil {
		return nil, err
	}
	n.popular.observe(m)
	return m, nil
}

// Chosen is how often each expert was chosen, [layers][experts], since a leader began to
// count.
func (n *Node) Chosen() [][]uint64 { return n.popular.counts() }

// Measure implements replica.Host.
func (n *Node) Measure(ctx context.Context, g *distributed.Group, rank replica.Rank, p parallel.Placement) (calibrate.Costs, error) {
	start := time.Now()
	costs, err := calibrate.Measure(ctx, g, rank, n.Record, p, calibrate.Standard())
	if err == nil && g.Rank() == 0 {
		slog.Info("the group has been measured", "duration", time.Since(start).Round(time.Millisecond))
	}
	return costs, err
}

// ResidentBytes implements replica.Host.
func (n *Node) ResidentBytes() int64 { return host.ResidentBytes() }
