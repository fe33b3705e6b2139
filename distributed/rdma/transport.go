package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
)

// Transport is the distributed.Transport of this package.
type Transport struct {
	opts Options

	forming chan struct{} // taken while a group is formed, and by Close
	mu      sync.Mutex
	host0   string // listened on last; mu
	lib     *verbs.Library
	open    map[string]*device
}

var _ distributed.Transport = (*Transport)(nil)

// New makes a transport that does not listen yet. The library and the devices
// are opened by the first Connect.
func New(o Options) *Transport {
	return &Transport{opts: o.withDefaults(), open: map[string]*device{}, forming: make(chan struct{}, 1)}
}

// turn waits until no other group is being formed; done must follow.
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

// Listen is described at distributed.Transport: it is the side transport that
// is reached at the address.
func (t *Transport) Listen(host string) (string, error) {
	if t.opts.Side == nil {
		return "", fmt.Errorf("%w: rdma needs a side transport to form a group over", distributed.ErrConfig)
	}
	addr, err := t.opts.Side.Listen(host)
	if err == nil {
		t.mu.Lock()
		t.host0 = host
		t.mu.Unlock()
	}
	return addr, err
}

// listensOn is the address of this machine, "" before Listen.
func (t *Transport) listensOn() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.host0
}

// Close is described at distributed.Transport. The devices are closed.
func (t *Transport) Close() error {
	t.forming <- struct{}{}
	defer t.done()
	var side error
	if t.opts.Side != nil {
		side = t.opts.Side.Close()
	}
	return errors.Join(side, t.closeDevices())
}

// Connect is described at distributed.Transport. A group of one rank needs no
// cable and is distributed.Local.
func (t *Transport) Connect(ctx context.Context, l distributed.Link) (distributed.Group, error) {
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
	if t.opts.Ask != nil {
		t.opts.Host = t.opts.Ask(ctx)
	}
	over := l
	over.Suspect, over.VerdictTimeout = nil, 0
	over.OpTimeout = max(l.OpTimeout, stepTimeout)
	side, err := t.opts.Side.Connect(ctx, over)
	if err != nil {
		return nil, err
	}
	b := &bootstrap{t: t, ctx: ctx, link: l, side: side, given: t.opts.Matrix, own: t.opts.rule(), probed: map[matrix.Attempt]bool{},
		patience: t.opts.TokenTimeout}
	g, err := b.run()
	if err != nil {
		b.abandon()
		_ = side.Close()
		if t.opts.OrSide && ctx.Err() == nil {
			t.opts.Report(fmt.Sprintf("no group over RDMA, all ranks use %s: %v", t.opts.Side.Name(), err))
			return t.opts.Side.Connect(ctx, l)
		}
		var op *distributed.OpError
		if !errors.As(err, &op) {
			err = &distributed.OpError{Op: "connect", Rank: l.Rank, Peer: -1, Err: err}
		}
		if !errors.Is(err, distributed.ErrBootstrap) {
			err = fmt.Errorf("%w: %w", distributed.ErrBootstrap, err)
		}
		return nil, err
	}
	g.loud()
	b.report("")
	return g, nil
}

// limit is how long the driver is waited for.
func (t *Transport) limit() time.Duration {
	if t.opts.CallLimit > 0 {
		return t.opts.CallLimit
	}
	return verbs.DefaultLimit
}
