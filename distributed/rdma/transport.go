package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/bringup"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
)

// Transport is the distributed.Transport of this package.
type Transport struct {
	opts Options

	forming chan struct{} // held while a group is formed, and by Close
	devices *bringup.Devices
	mu      sync.Mutex
	host    string // listened on last; mu
}

var _ distributed.Transport = (*Transport)(nil)

// New makes a transport that does not listen yet. The library and the devices
// are opened by the first Connect.
func New(o Options) *Transport {
	o.Tuning = o.Tuning.withDefaults()
	if o.Report == nil {
		o.Report = func(string) {}
	}
	return &Transport{opts: o, devices: &bringup.Devices{Library: o.Tuning.Library, Type: o.Tuning.Type, Helper: o.Verbs.helper(), Spin: o.Tuning.Spin}, forming: make(chan struct{}, 1)}
}

// turn waits until no other group is being formed. The caller must call done afterwards.
func (t *Transport) turn(ctx context.Context) error {
	select {
	case t.forming <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: another group is being formed: %w", distributed.ErrBootstrap, context.Cause(ctx))
	}
}

func (t *Transport) done() { <-t.forming }

// Name is "rdma".
func (t *Transport) Name() string { return "rdma" }

// Listen is described at distributed.Transport. The address is that of the side transport.
func (t *Transport) Listen(host string) (string, error) {
	if t.opts.Side == nil {
		return "", fmt.Errorf("%w: rdma needs a side transport to form a group", distributed.ErrConfig)
	}
	addr, err := t.opts.Side.Listen(host)
	if err == nil {
		t.mu.Lock()
		t.host = host
		t.mu.Unlock()
	}
	return addr, err
}

// Probe is described at distributed.Transport. It probes the side transport.
func (t *Transport) Probe(ctx context.Context, addr string) error {
	if t.opts.Side == nil {
		return nil
	}
	return t.opts.Side.Probe(ctx, addr)
}

// listensOn returns the address of this host, "" before Listen.
func (t *Transport) listensOn() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.host
}

// closeLimit is how long Close waits for a bring-up in progress. verbs.DefaultLimit bounds a
// call of the driver, and after the call the bring-up notices the end of its context.
const closeLimit = verbs.DefaultLimit + time.Second

// Close is described at distributed.Transport. The devices are closed.
func (t *Transport) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit,
		fmt.Errorf("%w: it did not end within %v; its devices are left behind", distributed.ErrTimeout, closeLimit))
	defer cancel()
	if err := t.turn(ctx); err != nil {
		if t.opts.Side != nil {
			err = errors.Join(err, t.opts.Side.Close())
		}
		return err
	}
	defer t.done()
	var side error
	if t.opts.Side != nil {
		side = t.opts.Side.Close()
	}
	return errors.Join(side, t.devices.Close())
}

// Connect is described at distributed.Transport. A group of one rank is distributed.Local,
// because it needs no cable.
func (t *Transport) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	if l.Size == 1 && l.Rank == 0 {
		return distributed.Local(), nil
	}
	if err := t.turn(ctx); err != nil {
		return nil, err
	}
	defer t.done()
	if t.listensOn() == "" {
		return nil, fmt.Errorf("%w: this transport does not listen; call Listen first", distributed.ErrBootstrap)
	}
	var tools matrix.Host
	if t.opts.Ask != nil {
		tools = t.opts.Ask(ctx)
	}
	over := l
	over.Suspect, over.VerdictTimeout = nil, 0
	over.OpTimeout = max(l.OpTimeout, stepTimeout)
	side, err := t.opts.Side.Connect(ctx, over)
	if err != nil {
		return nil, err
	}
	cables := t.opts.Matrix
	if l.World != nil {
		if cables, err = part(cables, l.World); err != nil {
			return nil, errors.Join(err, side.Close())
		}
	}
	g, err := t.form(ctx, l, side, bringup.Config{Tools: tools, Matrix: cables, Rules: t.opts.rules(), Patience: t.opts.Tuning.TokenTimeout})
	if err != nil {
		_ = side.Close()
		if t.opts.OrSide && ctx.Err() == nil {
			t.opts.Report(fmt.Sprintf("no group over RDMA, so all ranks use %s: %v", t.opts.Side.Name(), err))
			return t.opts.Side.Connect(ctx, l)
		}
		var op *distributed.OpError
		if !errors.As(err, &op) {
			err = &distributed.OpError{Op: "connect", Rank: l.Rank, Peer: -1, Hosts: l.Hosts, Err: err}
		}
		if !errors.Is(err, distributed.ErrBootstrap) {
			err = fmt.Errorf("%w: %w", distributed.ErrBootstrap, err)
		}
		return nil, err
	}
	t.report("", g)
	return g, nil
}

// form brings rails up over the side group and makes the group over them. The
// side group belongs to that group; after an error it may be open or closed.
func (t *Transport) form(ctx context.Context, l distributed.Link, side *distributed.Group, c bringup.Config) (*distributed.Group, error) {
	return distributed.Form(ctx, l, func(ctx context.Context, l distributed.Link) (distributed.Driver, error) {
		c.Link, c.Side, c.Host, c.Devices, c.MatrixFile, c.Encrypt, c.Ports = l, side, t.listensOn(), t.devices, t.opts.MatrixFile, t.opts.Encrypt, t.opts.Ports
		rails, err := bringup.Run(ctx, c)
		if err != nil {
			return nil, err
		}
		d, err := newDriver(t, l, side, rails)
		if vote := rails.Vote(ctx, "make the group", err); vote == nil {
			return d, nil
		} else if d != nil {
			_ = d.Close()
			err = vote
		} else {
			_ = rails.Destroy()
		}
		return nil, fmt.Errorf("%w: %v", distributed.ErrBootstrap, err)
	})
}

// report reports what was corrected or left out, and how the ranks are joined.
func (t *Transport) report(who string, g *distributed.Group) {
	x := g.Describe()
	for _, n := range x.Notes {
		t.opts.Report(who + n)
	}
	t.opts.Report(who + x.Topology)
}
