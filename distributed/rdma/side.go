package rdma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/engine"
	"ringmaster/distributed/rdma/internal/liveness"
)

// What uses the side channel: messages between ranks without a cable, and the
// agreements of a split.

// agreeSlack is how much longer than the rails the side channel may take in an
// agreement, so that the rails name the late rank first.
const agreeSlack = 500 * time.Millisecond

// agree begins the all-gather of an Agree. Meanwhile the rails do a barrier of
// its own kind, so that a rank that does something else, on either channel, is
// detected at once.
func (d *driver) agree() {
	dst, src := d.op.Dst, d.op.Src
	d.overSide(agreeSlack, -1, func(ctx context.Context) error { return d.side.AllGather(ctx, dst, src) })
}

// route sends a message over rails if the two ranks have some, otherwise over the
// side channel; both ends decide the same. It returns what the engine must do,
// with Kind 0 for nothing.
func (d *driver) route(o engine.Operation) engine.Operation {
	op, joined := d.op.Op, d.eng.Plan().Topology
	o.Kind, o.To, o.From, o.Bytes, o.Received = distributed.Send, op.To, op.From, int64(len(op.Src)), int64(len(op.Dst))
	if d.measuring {
		o.Rails = 1
	}
	sideTo, sideFrom := -1, -1
	if op.To >= 0 && !joined.Joined(d.link.Rank, op.To) {
		sideTo, o.To, o.Bytes = op.To, -1, 0
	}
	if op.From >= 0 && !joined.Joined(d.link.Rank, op.From) {
		sideFrom, o.From, o.Received = op.From, -1, 0
	}
	dst, src := op.Dst, op.Src
	if sideTo >= 0 || sideFrom >= 0 {
		d.overSide(0, max(sideTo, sideFrom), func(ctx context.Context) error {
			switch {
			case sideTo >= 0 && sideFrom >= 0:
				return d.side.SendRecv(ctx, dst, sideFrom, src, sideTo)
			case sideTo >= 0:
				return d.side.Send(ctx, src, sideTo)
			}
			return d.side.Recv(ctx, dst, sideFrom)
		})
	}
	if d.op.peer = o.To; o.To < 0 {
		d.op.peer = o.From
	}
	if d.op.peer < 0 {
		o.Kind = 0
	}
	return o
}

// overSide begins the part of an operation that uses the side channel, on a
// goroutine that Wait waits for. It may take slack longer than the part over the
// rails, because that part knows better which rank is late. An error that names
// no rank is blamed on peer, -1 for none.
func (d *driver) overSide(slack time.Duration, peer int, f func(ctx context.Context) error) {
	result := make(chan error, 1)
	d.op.side = result
	deadline := d.op.Deadline.Add(slack)
	d.running.Go(func() {
		ctx, cancel := context.WithDeadlineCause(context.Background(), deadline,
			fmt.Errorf("%w: not delivered within %v", distributed.ErrTimeout, d.link.OpTimeout))
		defer cancel()
		err := f(ctx)
		if err != nil {
			d.sideFailed(peer, err)
		}
		result <- err
	})
}

// sideFailed suspects the peer of an error of the side channel. If the peer has
// closed it, the peer has given up, and its notice will say why.
func (d *driver) sideFailed(peer int, err error) {
	var op *distributed.OpError
	if errors.As(err, &op) {
		if err = op.Err; op.Peer >= 0 {
			peer = op.Peer
		}
	}
	if errors.Is(err, distributed.ErrPeerGone) {
		timer := time.NewTimer(liveness.NoticeTimeout)
		defer timer.Stop()
		select {
		case <-d.failed:
		case <-timer.C:
		}
	}
	d.suspect(peer, err)
}
