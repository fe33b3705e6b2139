package mpi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"ringmaster/distributed"
)

// Transport is the distributed.Transport over the MPI world of a job.
type Transport struct {
	world *World
	opts  Options
}

var _ distributed.Transport = (*Transport)(nil)

// New makes the transport of a world; its Close ends the world.
func New(w *World, o Options) distributed.Transport {
	return &Transport{world: w, opts: o.withDefaults()}
}

// Name is "mpi".
func (t *Transport) Name() string { return "mpi" }

// scheme is the prefix of this transport's addresses.
const scheme = "mpi:"

// Listen implements distributed.Transport. It ignores host, because MPI does
// its own addressing. The address, such as "mpi:node7/3", only identifies the
// rank in messages.
func (t *Transport) Listen(string) (string, error) {
	return fmt.Sprintf("%s%s/%d", scheme, t.world.host, t.world.rank), nil
}

// Close ends MPI in this process: see World.Close.
func (t *Transport) Close() error { return t.world.Close() }

// restart tells the user how to recover from the loss of a process.
const restart = "if its process has died, restart the job, because MPI cannot add a process to a running one"

// check verifies that a link fits the world.
func (t *Transport) check(l *distributed.Link) error {
	w := t.world
	if l.Size != w.size || l.Rank != w.rank {
		return fmt.Errorf("%w: rank %d of %d; MPI says %d of %d", distributed.ErrConfig, l.Rank, l.Size, w.rank, w.size)
	}
	for r, a := range l.Addrs {
		if !strings.HasPrefix(a, scheme) {
			return fmt.Errorf("%w: rank %d at %s does not use MPI; start all ranks with --transport mpi", distributed.ErrBootstrap, r, a)
		}
	}
	return nil
}

// Probe implements distributed.Transport. It returns nil, because MPI makes its
// own connections.
func (t *Transport) Probe(context.Context, string) error { return nil }

// Connect implements distributed.Transport. It works as long as all processes
// of the job are alive.
func (t *Transport) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	if err := t.check(&l); err != nil {
		return nil, err
	}
	w := t.world
	g, err := distributed.Form(ctx, l, t.join)
	if err != nil {
		return nil, err
	}
	d, ok := g.Driver().(*driver)
	if !ok {
		return g, nil // a group of one rank
	}
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.groups[d] = g
	}
	w.mu.Unlock()
	if closed {
		g.Fail(distributed.ErrClosed)
	}
	return g, nil
}

// join makes the communicator of a group and its driver.
func (t *Transport) join(ctx context.Context, l distributed.Link) (distributed.Driver, error) {
	w := t.world
	w.mu.Lock()
	busy, closed := w.joins, w.closed
	w.joins = true
	w.mu.Unlock()
	switch {
	case closed:
		return nil, fmt.Errorf("%w: MPI has ended: %w", distributed.ErrBootstrap, distributed.ErrClosed)
	case busy:
		return nil, fmt.Errorf("%w: this transport is already connecting a group", distributed.ErrBootstrap)
	}
	defer func() {
		w.mu.Lock()
		w.joins = false
		w.mu.Unlock()
	}()
	begun := time.Now()
	var d *driver
	err := w.do(ctx, func(stop flag) error {
		comm, err := w.agree(&l, &t.opts, stop)
		if err == nil {
			d = newDriver(w, l, t.opts, comm, everyRank(l.Size), tagData, &tags{next: tagGoodbye + 1})
		}
		return err
	})
	if err == nil {
		return d, nil
	}
	if at, ok := errors.AsType[*distributed.OpError](err); ok {
		at.Elapsed = time.Since(begun)
		return nil, at
	}
	return nil, &distributed.OpError{Op: "connect", Rank: l.Rank, Peer: -1, Hosts: l.Hosts, Elapsed: time.Since(begun), Err: fmt.Errorf("%w: %w", distributed.ErrBootstrap, err)}
}

// proof identifies a group: it differs between epochs and between leaders.
func proof(l *distributed.Link) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%s\n%d\n", l.Epoch, l.GroupID, l.Size)
	h.Write(l.Token)
	return h.Sum(nil)
}

// wanted returns the control message that asks for a group.
func wanted(l *distributed.Link, o *Options) controlMessage {
	return controlMessage{Kind: kindHello, Epoch: l.Epoch, Group: hex.EncodeToString(proof(l)), First: o.First, Piece: o.Piece, Threshold: o.Threshold}
}

// differs says how the group that a rank wants differs from the one that rank 0
// wants, "" if it does not.
func (l *controlMessage) differs(from controlMessage) string {
	switch {
	case l.Epoch != from.Epoch:
		return fmt.Sprintf("it wants epoch %d, rank 0 epoch %d", l.Epoch, from.Epoch)
	case l.Group != from.Group:
		return fmt.Sprintf("it wants another group in epoch %d than rank 0, or has another token", l.Epoch)
	case l.First != from.First || l.Piece != from.Piece || l.Threshold != from.Threshold:
		return fmt.Sprintf("its messages have %d and %d bytes and its threshold %d, those of rank 0 %d, %d and %d",
			l.First, l.Piece, l.Threshold, from.First, from.Piece, from.Threshold)
	}
	return ""
}

// trouble returns the error for a failed connection with a peer.
func trouble(l *distributed.Link, peer int, err error) error {
	return &distributed.OpError{Op: "connect", Rank: l.Rank, Peer: peer, Addr: l.Addrs[peer], Hosts: l.Hosts, Err: fmt.Errorf("%w: %w", distributed.ErrBootstrap, err)}
}

// agree makes the communicator of an epoch once all ranks want it; the owner
// calls it. Rank 0 waits for all other ranks and then sends them a go. Every
// rank begins a communicator for every go, even for an epoch that it has since
// given up, because making one is a collective operation.
func (w *World) agree(l *distributed.Link, o *Options, stop flag) (comm unsafe.Pointer, err error) {
	mine := wanted(l, o)
	if w.rank == 0 {
		err = w.hearAll(l, mine, stop)
	} else {
		err = w.askLeader(l, mine, stop)
	}
	if err != nil {
		return nil, err
	}
	c, err := w.duplicate(w.control)
	if err != nil {
		return nil, err
	}
	if err := w.finishCopy(c, stop, time.Hour); err != nil {
		w.copies = append(w.copies, c) // it may still complete later, but is not used
		return nil, err
	}
	return c.comm(), nil
}

// hearAll is rank 0's side of agree.
func (w *World) hearAll(l *distributed.Link, mine controlMessage, stop flag) error {
	there := make([]bool, w.size)
	for n := 1; n < w.size; {
		peer, said, err := w.hello.next(stop)
		if err != nil {
			return silent(l, there, err)
		}
		if said.Kind != kindHello || said.Epoch < l.Epoch {
			continue // for an epoch that has ended
		}
		if why := said.differs(mine); why != "" {
			_ = w.say(peer, controlMessage{Kind: kindNo, Epoch: said.Epoch, Why: why}, stop)
			return trouble(l, peer, errors.New(why))
		}
		if !there[peer] {
			there[peer] = true
			n++
		}
	}
	answer := mine
	answer.Kind = kindGo
	for p := 1; p < w.size; p++ {
		// Once one rank has the go, all ranks get it, so that those that have
		// it continue together.
		if err := w.say(p, answer, newFlag()); err != nil {
			return trouble(l, p, err)
		}
	}
	return nil
}

// silent returns the error for ranks that have not sent a hello.
func silent(l *distributed.Link, there []bool, cause error) error {
	first := -1
	var who []string
	for p := 1; p < len(there); p++ {
		if !there[p] {
			who = append(who, fmt.Sprintf("%s at %s", l.Name(p), l.Addrs[p]))
			if first < 0 {
				first = p
			}
		}
	}
	if errors.Is(cause, errStopped) {
		cause = distributed.ErrTimeout
	}
	return trouble(l, first, fmt.Errorf("%w; MPI delivered no message from %s: %s", cause, strings.Join(who, ", "), restart))
}

// askLeader is the side of agree on every rank but 0.
func (w *World) askLeader(l *distributed.Link, mine controlMessage, stop flag) error {
	if err := w.say(0, mine, stop); err != nil {
		return trouble(l, 0, err)
	}
	for {
		_, said, err := w.hello.next(stop)
		if errors.Is(err, errStopped) {
			err = fmt.Errorf("%w; rank 0 has not received a message from every rank over MPI: %s", distributed.ErrTimeout, restart)
		}
		switch {
		case err != nil:
			return trouble(l, 0, err)
		case said.Kind == kindNo && said.Epoch == l.Epoch:
			return trouble(l, 0, fmt.Errorf("rank 0 rejected this rank: %s", said.Why))
		case said.Kind != kindGo:
		case said.Epoch == l.Epoch && said.Group == mine.Group:
			return nil
		default: // this rank had given up that epoch, but the other ranks are waiting
			c, err := w.duplicate(w.control)
			if err != nil {
				return trouble(l, 0, err)
			}
			w.copies = append(w.copies, c)
		}
	}
}
