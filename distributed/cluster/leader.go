package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/accept"
	"ringmaster/distributed/control"
	"ringmaster/internal/network"
)

// Leader is rank 0 of a group. Any goroutine may call its methods.
type Leader struct {
	cfg        Config
	planner    Planner
	listener   net.Listener
	ctx        context.Context // ends with the leader
	cancel     context.CancelFunc
	wg         sync.WaitGroup
	done       chan struct{} // closed when the group has ended for good
	everywhere bool          // listener listens on all interfaces
	// strangers are the connections on which no rank has joined yet.
	strangers *accept.Pending
	ration    ration // of log lines about strangers
	// suspicions of this rank's group, for runClock.
	suspicions chan suspicion

	mu     sync.Mutex // guards all below
	clock  *clock     // of runClock
	sm     *stateMachine
	conns  map[int]*outbox // by the id that the state machine knows
	lastID int             // of a connection
	// dataHost is, if everywhere, where the data plane listens; "" before the
	// first epoch.
	dataHost string
	run      *run          // nil between epochs
	changed  chan struct{} // closed and replaced when something that callers wait for has changed
	recruits []*recruit    // those that Recruit has not returned yet, and those in use
	forming  formingClock
	reads    Reads    // of the epoch that forms or runs
	reports  [][]byte // [Size] answers to Reports, nil while no call is waiting
	err      error    // why the group has ended
	events   events   // for Status
}

// Lead listens on the coordinator's address and forms epochs until Close. It
// returns at once; Wait waits for the first epoch. ctx bounds only the
// listening. Errors name the address and, where it is known, the cure.
func Lead(ctx context.Context, cfg Config, p Planner) (*Leader, error) {
	cfg = cfg.withDefaults()
	listener, err := control.Listen(ctx, cfg.Coordinator, cfg.Key)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(listener.Addr().String())
	tcp, ok := listener.Addr().(*net.TCPAddr)
	everywhere := ok && tcp.IP.IsUnspecified()
	if err == nil && !everywhere {
		cfg.Hello.Data, err = cfg.Transport.Listen(host)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("rank 0: data plane at %s: %w", host, err)
	}
	var id [16]byte
	rand.Read(id[:]) // never fails
	l := &Leader{
		cfg: cfg, planner: p, listener: listener, everywhere: everywhere,
		done: make(chan struct{}), conns: map[int]*outbox{}, changed: make(chan struct{}),
		suspicions: make(chan suspicion, 16), strangers: accept.NewPending(accept.DefaultLimit()),
		sm: newStateMachine(params{
			self: cfg.Hello, groupID: hex.EncodeToString(id[:]), describe: p.Describe,
			joinTimeout: cfg.ConnectTimeout, peerTimeout: cfg.PeerTimeout, loadTimeout: cfg.FormTimeout,
			connectTimeout: cfg.connectVerdict(), workTimeout: cfg.WorkTimeout,
			grace: cfg.PeerTimeout / 10, retryPause: time.Second, irreplaceable: cfg.Irreplaceable,
			onLoss: cfg.OnLoss, minRanks: cfg.MinRanks, open: cfg.Open, recoverLimit: cfg.RecoverTimeout, failPause: 30 * time.Second, rejoinAfter: cfg.RejoinAfter, drainTimeout: cfg.DrainTimeout,
		}),
	}
	l.clock = newClock(cfg.tick())
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if ok && len(cfg.Key) == 0 && !tcp.IP.IsLoopback() {
		cfg.Log.Warn("the cluster has no key: anyone who can reach this address can join; set --cluster-key-file to require a key", "address", tcp)
	}
	if name, _, _ := net.SplitHostPort(cfg.Coordinator); ok && cfg.Hello.Size > 1 && tcp.IP.IsLoopback() && network.Loopback(name) != "" {
		cfg.Log.Warn("on this host the coordinator's name means a loopback address, which other hosts cannot reach: give the name an address of the network in /etc/hosts (Debian puts it at 127.0.1.1), or give --coordinator an address on every rank",
			"name", name, "address", tcp.IP, "host_has", network.Own())
	}
	if cfg.Open {
		cfg.Log.Info("other ranks may join", "address", listener.Addr(), "most", cfg.Hello.Size)
	} else {
		cfg.Log.Info("waiting for the other ranks", "address", listener.Addr(), "ranks", cfg.Hello.Size)
	}
	l.wg.Go(l.accept)
	l.wg.Go(l.runClock)
	l.event(func() { l.sm.form() }) // a group of one is complete at once
	return l, nil
}

// Addr returns the address on which the leader listens.
func (l *Leader) Addr() net.Addr { return l.listener.Addr() }

// Wait returns nil when an epoch has run, or the reason why the group ended
// before that.
func (l *Leader) Wait(ctx context.Context) error {
	return l.until(ctx, func() (bool, error) {
		if !l.sm.everRan && l.sm.phase == stopped {
			return false, cmp.Or(l.err, distributed.ErrClosed)
		}
		return l.sm.everRan, nil
	})
}

// until calls check with mu held, again after every change, until it returns true or an
// error, or ctx ends. The end of the group is a change.
func (l *Leader) until(ctx context.Context, check func() (bool, error)) error {
	for {
		l.mu.Lock()
		done, err := check()
		changed := l.changed
		l.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Done is closed when the group has ended for good: after Close, when a user
// ended it on another rank, or because of an error that Err returns.
func (l *Leader) Done() <-chan struct{} { return l.done }

// Err returns why the group has ended; nil if it has not, or if a user asked
// for it.
func (l *Leader) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the group and sends every rank the reason. Until ctx ends it waits
// for what this rank is still doing in the group.
func (l *Leader) Close(ctx context.Context, reason string) error {
	l.event(func() { l.sm.stop(reason, true) })
	ended := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return l.cfg.Transport.Close()
	case <-ctx.Done():
		return fmt.Errorf("rank 0: work is still in progress: %w", context.Cause(ctx))
	}
}
