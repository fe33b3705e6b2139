package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
)

// limit bounds every wait of these tests; none comes near it.
const limit = 20 * time.Second

// soon is a context that ends with the test, or after limit.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// transport is a network in memory that may reject a rank.
type transport struct {
	*memory.Network
	refuse error                   // of Connect
	probe  func(addr string) error // nil: it reaches all
}

func (t *transport) Probe(ctx context.Context, addr string) error {
	if t.probe == nil {
		return t.Network.Probe(ctx, addr)
	}
	return t.probe(addr)
}

func (t *transport) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	if t.refuse != nil {
		return nil, t.refuse
	}
	return t.Network.Connect(ctx, l)
}

// program is a rank that meets the others for each piece of work; its digest is
// the payload.
type program struct {
	mu       sync.Mutex
	epoch    Epoch
	settings string
	formErr  error
	fitsErr  error
	workErr  func(payload string) error
	lies     *atomic.Int32                // how many of the next digests are wrong, nil: none
	planning atomic.Pointer[atomic.Int32] // counts plans
	did      []string
	ahead    []string
	taking   sync.Mutex // held while a payload ahead is taken
}

func (p *program) Plan(members []Hello) ([]byte, error) {
	if n := p.planning.Load(); n != nil {
		n.Add(1)
	}
	return fmt.Appendf(nil, "%d ranks", len(members)), nil
}
func (p *program) Fits(members []Hello) error { return p.fitsErr }
func (p *program) Reads() Reads               { return Reads{Bytes: 7 << 20, Rate: 2 << 20} }
func (p *program) Describe(i int) string      { return fmt.Sprintf("byte %d", i) }
func (p *program) Form(_ context.Context, settings []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = string(settings)
	return p.formErr
}
func (p *program) Start(e Epoch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = e
	return nil
}
func (p *program) Ahead(payload []byte) error {
	p.taking.Lock()
	defer p.taking.Unlock()
	if string(payload) == "poison" {
		return errors.New("it is poisoned")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = append(p.ahead, string(payload))
	return nil
}
func (p *program) Report() []byte { return []byte("report") }
func (p *program) Work(payload []byte) (Digest, error) {
	p.mu.Lock()
	e := p.epoch
	p.did = append(p.did, string(payload))
	p.mu.Unlock()
	if p.workErr != nil {
		if err := p.workErr(string(payload)); err != nil {
			return nil, err
		}
	}
	if err := e.Group.Barrier(e.Done); err != nil {
		return nil, err
	}
	d := Digest{}
	for _, b := range payload {
		d = append(d, uint32(b))
	}
	if p.lies != nil && p.lies.Add(-1) >= 0 {
		d[0]++
	}
	return d, nil
}

// rig is a cluster in one process, over loopback sockets.
type rig struct {
	t      *testing.T
	net    *memory.Network
	size   int
	addr   string
	key    []byte
	onLoss OnLoss
	leader *Leader
	lead   *program

	mu     sync.Mutex
	formed []Formation
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newRig returns a cluster that waits for lost ranks.
func newRig(t *testing.T, size int, key []byte) *rig { return newRigThat(t, Await, size, key) }

func newRigThat(t *testing.T, onLoss OnLoss, size int, key []byte, changes ...func(*Config)) *rig {
	return newRigOn(t, memory.NewNetwork(), onLoss, size, key, changes...)
}

// newRigOn returns a cluster on a network that others may use too. change applies to
// the leader's configuration.
func newRigOn(t *testing.T, net *memory.Network, onLoss OnLoss, size int, key []byte, changes ...func(*Config)) *rig {
	r := &rig{t: t, net: net, size: size, key: key, onLoss: onLoss, lead: &program{}}
	cfg := r.config(0, "127.0.0.1:0")
	for _, change := range changes {
		change(&cfg)
	}
	l, err := Lead(t.Context(), cfg, r.lead)
	require.NoError(t, err)
	r.leader, r.addr = l, l.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		require.NoError(t, l.Close(ctx, "the test is over"))
	})
	return r
}

func (r *rig) config(rank int, addr string) Config {
	return Config{Hello: testHello(rank, r.size), Coordinator: addr, Key: r.key, Transport: &transport{Network: r.net},
		ConnectTimeout: limit, PeerTimeout: 2 * time.Second, OnLoss: r.onLoss, Log: quiet(), Formed: func(f Formation) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.formed = append(r.formed, f)
		}}
}

// following is a running follower of the rig.
type following struct {
	*program
	stop context.CancelCauseFunc
	end  chan error
}

func (r *rig) follow(rank int, change func(*Config, *program)) *following {
	ctx, cancel := context.WithCancelCause(r.t.Context())
	f := &following{&program{}, cancel, make(chan error, 1)}
	cfg := r.config(rank, r.addr)
	if change != nil {
		change(&cfg, f.program)
	}
	go func() { f.end <- Follow(ctx, cfg, f.program) }()
	r.t.Cleanup(func() { cancel(errors.New("the test is over")) })
	return f
}

// cut closes the connections of all followers.
func (r *rig) cut() {
	r.leader.mu.Lock()
	defer r.leader.mu.Unlock()
	for _, o := range r.leader.conns {
		o.conn.Close()
	}
}

// crash ends the follower of a rank without a goodbye.
func (r *rig) crash(rank int, f *following) {
	r.leader.mu.Lock()
	if x := r.leader.sm.members[rank]; x != nil {
		r.leader.conns[x.conn].conn.Close()
	}
	r.leader.mu.Unlock()
	f.stop(errors.New("crashed"))
}

// ended waits for the end of a follower.
func (r *rig) ended(f *following) error {
	select {
	case err := <-f.end:
		return err
	case <-time.After(limit):
		require.Fail(r.t, "the follower has not ended")
		return nil
	}
}

// running waits for an epoch after the given one.
func (r *rig) running(after uint32) Epoch {
	var e Epoch
	require.Eventually(r.t, func() bool {
		got, err := r.leader.Epoch()
		e = got
		return err == nil && got.Number > after
	}, limit, 2*time.Millisecond)
	return e
}

// do makes all ranks do a piece of work.
func (r *rig) do(e Epoch, payload string) error {
	n, err := r.leader.Begin(e.Number, []byte(payload))
	if err != nil {
		return err
	}
	d, err := r.lead.Work([]byte(payload))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return r.leader.End(ctx, n, d)
}
