package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// limit bounds every wait of these tests; none gets near it.
const limit = 20 * time.Second

// hub joins the groups of one test process: a rendezvous for each epoch.
type hub struct {
	mu     sync.Mutex
	epochs map[string]*rendezvous
}

// rendezvous counts who has come.
type rendezvous struct {
	come int
	all  chan struct{}
}

// meet returns when size ranks have met under a name, or when done ends.
func (h *hub) meet(name string, size int, done <-chan struct{}) bool {
	h.mu.Lock()
	r := h.epochs[name]
	if r == nil {
		r = &rendezvous{all: make(chan struct{})}
		h.epochs[name] = r
	}
	if r.come++; r.come == size {
		close(r.all)
	}
	h.mu.Unlock()
	select {
	case <-r.all:
		return true
	case <-done:
		return false
	}
}

// transport makes groups that can only meet.
type transport struct {
	hub    *hub
	refuse error // of Connect
}

func (t *transport) Name() string                       { return "test" }
func (t *transport) Listen(host string) (string, error) { return host + ":0", nil }
func (t *transport) Close() error                       { return nil }
func (t *transport) Connect(ctx context.Context, l distributed.Link) (distributed.Group, error) {
	if t.refuse != nil {
		return nil, t.refuse
	}
	if !t.hub.meet(fmt.Sprintf("%s %d %x", l.GroupID, l.Epoch, l.Token), l.Size, ctx.Done()) {
		return nil, context.Cause(ctx)
	}
	return &group{hub: t.hub, link: l, failed: make(chan struct{})}, nil
}

// group is a group whose only operation is Barrier.
type group struct {
	distributed.Group // the rest is not used
	hub               *hub
	link              distributed.Link
	seq               int

	once   sync.Once
	failed chan struct{}
	cause  error
}

func (g *group) Kind() string { return "test" }
func (g *group) Close() error { return nil }
func (g *group) Fail(cause error) {
	g.once.Do(func() { g.cause = cause; close(g.failed) })
}
func (g *group) Barrier(context.Context) error {
	g.seq++
	if !g.hub.meet(fmt.Sprintf("%s %d barrier %d", g.link.GroupID, g.link.Epoch, g.seq), g.link.Size, g.failed) {
		return g.cause
	}
	return nil
}

// program is a rank that meets the others for each piece of work and digests
// its payload.
type program struct {
	mu       sync.Mutex
	epoch    Epoch
	settings string
	formErr  error
	workErr  func(payload string) error
	lie      bool
	did      []string
}

func (p *program) Plan(members []Hello) ([]byte, error) {
	return fmt.Appendf(nil, "%d ranks", len(members)), nil
}
func (p *program) Describe(i int) string { return fmt.Sprintf("byte %d", i) }
func (p *program) Form(_ context.Context, settings []byte) error {
	p.settings = string(settings)
	return p.formErr
}
func (p *program) Start(e Epoch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = e
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
	if p.lie {
		d[0]++
	}
	return d, nil
}

// rig is a cluster in one process, over loopback sockets.
type rig struct {
	t      *testing.T
	hub    *hub
	size   int
	addr   string
	key    []byte
	leader *Leader
	lead   *program
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newRig(t *testing.T, size int, key []byte) *rig {
	r := &rig{t: t, hub: &hub{epochs: map[string]*rendezvous{}}, size: size, key: key, lead: &program{}}
	l, err := Lead(t.Context(), r.config(0, "127.0.0.1:0"), r.lead)
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
	return Config{Hello: testHello(rank, r.size), Coordinator: addr, Key: r.key, Transport: &transport{hub: r.hub},
		ConnectTimeout: limit, PeerTimeout: 2 * time.Second, Log: quiet()}
}

// follower is a running follower of the rig.
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

// ended waits for the end of a follower.
func (r *rig) ended(f *following) error {
	select {
	case err := <-f.end:
		return err
	case <-time.After(limit):
		require.Fail(r.t, "the follower goes on")
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

// do has all ranks do a piece of work.
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

func TestGroupWorks(t *testing.T) {
	r := newRig(t, 3, []byte("a key of the cluster"))
	one, two := r.follow(1, nil), r.follow(2, nil)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.NoError(t, r.leader.Wait(ctx))
	e := r.running(0)
	for i := range 20 {
		require.NoError(t, r.do(e, fmt.Sprint("work ", i)))
	}
	reports, err := r.leader.Reports(ctx)
	require.NoError(t, err)
	require.Equal(t, [][]byte{nil, []byte("report"), []byte("report")}, reports)
	require.NoError(t, r.leader.Close(ctx, "enough"))
	require.NoError(t, r.ended(one))
	require.NoError(t, r.ended(two))
	require.Equal(t, one.did, two.did)
	require.Len(t, one.did, 20)
	require.Equal(t, "3 ranks", two.settings)
	_, err = r.leader.Begin(e.Number, nil)
	require.ErrorContains(t, err, "enough")
}

func TestGroupOfOne(t *testing.T) {
	r := newRig(t, 1, nil)
	e := r.running(0)
	require.NoError(t, r.do(e, "alone"))
}

// TestRankComesBack: a rank leaves, work under way ends with the verdict on
// both sides, the rank comes back, and the next epoch works.
func TestRankComesBack(t *testing.T) {
	r := newRig(t, 3, nil)
	one := r.follow(1, nil)
	r.follow(2, nil)
	e := r.running(0)
	require.NoError(t, r.do(e, "first"))
	one.workErr = func(string) error {
		one.stop(errors.New("was told to stop"))
		return errors.New("no more")
	}
	require.ErrorContains(t, r.do(e, "second"), "rank 1 at 127.0.0.1:")
	require.NoError(t, r.ended(one))
	require.Eventually(t, func() bool {
		_, err := r.leader.Epoch()
		return err != nil && strings.Contains(err.Error(), "waiting for rank 1")
	}, limit, 2*time.Millisecond)
	require.Error(t, r.do(e, "third"))
	require.Error(t, context.Cause(e.Done))

	r.follow(1, nil)
	next := r.running(e.Number)
	require.ErrorContains(t, r.do(e, "of the old epoch"), "has ended")
	require.NoError(t, r.do(next, "fourth"))
}

// TestLostLeader: a follower whose connection breaks finds the leader again.
func TestLostConnection(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, nil)
	e := r.running(0)
	r.leader.mu.Lock()
	for _, c := range r.leader.conns {
		c.Close()
	}
	r.leader.mu.Unlock()
	next := r.running(e.Number)
	require.NoError(t, r.do(next, "after all"))
	require.Equal(t, []string{"after all"}, one.did)
}

func TestWorkFails(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, nil)
	e := r.running(0)
	one.workErr = func(string) error { return errors.New("out of order") }
	require.ErrorContains(t, r.do(e, "work"), "out of order")
	one.workErr = nil
	require.NoError(t, r.do(r.running(e.Number), "again"))
	// An operation that waited for another rank blames that one.
	e = r.running(e.Number)
	one.workErr = func(string) error {
		return &distributed.OpError{Op: "all_sum", Seq: 7, Rank: 1, Peer: 0, Err: distributed.ErrTimeout}
	}
	require.ErrorContains(t, r.do(e, "work"), "rank 0: all_sum #7 on rank 1: rank 0: deadline passed (seen by rank 1)")
	one.workErr = nil
	e = r.running(e.Number)
	require.ErrorContains(t, r.leader.Fail(e.Number, &distributed.OpError{Op: "all_sum", Rank: 0, Peer: 1, Err: distributed.ErrTimeout}), "rank 1 at 127.0.0.1")
	// And of the leader's own work.
	e = r.running(e.Number)
	require.ErrorContains(t, r.leader.Fail(e.Number, errors.New("a broken kernel")), "rank 0: a broken kernel")
	r.running(e.Number)
}

func TestDivergenceStopsTheGroup(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, func(_ *Config, p *program) { p.lie = true })
	e := r.running(0)
	for i := 0; ; i++ {
		if err := r.do(e, "work"); err != nil {
			require.ErrorContains(t, err, "rank 1")
			require.ErrorContains(t, err, "at byte 0")
			require.LessOrEqual(t, i, 1, "one piece of work late at most")
			break
		}
	}
	require.NoError(t, r.ended(one), "the leader ended the group")
	<-r.leader.Done()
	require.ErrorContains(t, r.leader.Err(), "differs from rank 0")
}

func TestTurnedAway(t *testing.T) {
	r := newRig(t, 3, []byte("a key of the cluster"))
	r.follow(1, nil)
	for _, c := range []struct {
		change func(*Config, *program)
		want   string
	}{
		{func(c *Config, _ *program) { c.Hello.Fingerprint = "other" }, "rank 2 has m.gguf with other"},
		{func(c *Config, _ *program) { c.Hello.Rank = 7 }, "change --rank"},
		{func(c *Config, _ *program) { c.Key = []byte("another key, also long") }, "key"},
		{func(c *Config, _ *program) { c.Key = nil }, "key"},
	} {
		require.ErrorContains(t, r.ended(r.follow(2, c.change)), c.want)
	}
	// Garbage does no harm.
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x01\x02"} {
		nc, err := net.Dial("tcp", r.addr)
		require.NoError(t, err)
		_, err = nc.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, nc.Close())
	}
	r.follow(2, nil)
	require.NoError(t, r.do(r.running(0), "all the same"))
}

// TestTwoWithOneNumber: the second one is told, the first goes on.
func TestTwoWithOneNumber(t *testing.T) {
	r := newRig(t, 2, nil)
	r.follow(1, nil)
	e := r.running(0)
	require.ErrorContains(t, r.ended(r.follow(1, nil)), "rank 1 is taken")
	require.NoError(t, r.do(e, "work"))
}

func TestInterruptAnywhereEndsAll(t *testing.T) {
	r := newRig(t, 3, nil)
	one, two := r.follow(1, nil), r.follow(2, nil)
	r.running(0)
	two.stop(ErrStopAll)
	require.NoError(t, r.ended(one))
	require.NoError(t, r.ended(two))
	<-r.leader.Done()
	require.NoError(t, r.leader.Err())
}

func TestFirstEpochFails(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, func(_ *Config, p *program) { p.formErr = errors.New("no memory for m.gguf") })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.ErrorContains(t, r.leader.Wait(ctx), "no memory for m.gguf")
	require.NoError(t, r.ended(one))

	s := newRig(t, 2, nil)
	s.follow(1, func(c *Config, _ *program) {
		c.Transport = &transport{hub: s.hub, refuse: errors.New("cannot reach rank 0")}
	})
	require.ErrorContains(t, s.leader.Wait(ctx), "cannot reach rank 0")
}

func TestNoLeader(t *testing.T) {
	r := &rig{t: t, hub: &hub{}, size: 2}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.addr = l.Addr().String()
	require.NoError(t, l.Close())
	f := r.follow(1, func(c *Config, _ *program) { c.ConnectTimeout = 200 * time.Millisecond })
	err = r.ended(f)
	require.ErrorContains(t, err, r.addr)
	require.ErrorContains(t, err, "check that rank 0 runs")
}

func TestMessages(t *testing.T) {
	hello := testHello(1, 2)
	for _, m := range []message{
		{Kind: kindHello, Hello: &hello}, {Kind: kindWelcome, Group: "g"}, {Kind: kindReject, Reason: "no", Retry: true},
		{Kind: kindForm, Epoch: 3, Settings: []byte("s")}, {Kind: kindConnect, Epoch: 3, Token: []byte{1}, Addrs: []string{"a", "b"}},
		{Kind: kindWork, Epoch: 3, Number: 1 << 40, Payload: []byte("p")}, {Kind: kindDone, Epoch: 3, Number: 2, Digest: Digest{1, 1 << 31}},
		{Kind: kindVerdict, Epoch: 3, Peer: -1, Reason: "r", Addr: "x"}, {Kind: kindLeave, Reason: "r", All: true},
		{Kind: kindHeartbeat}, {Kind: kindReportPlease}, {Kind: kindReport, Payload: []byte("r")},
	} {
		got, err := decode(m.Kind, m.encode())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	for _, c := range []struct {
		k       kind
		payload string
	}{{kindWork, "short"}, {kindDone, "12 bytes here+"}, {kindHello, "{}"}, {kindVerdict, "{"}, {99, ""}, {0, ""}} {
		_, err := decode(c.k, []byte(c.payload))
		require.Error(t, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint16(kindDone), message{Kind: kindDone, Digest: Digest{1}}.encode())
	f.Add(uint16(kindForm), []byte(`{"epoch":1}`))
	f.Fuzz(func(t *testing.T, k uint16, payload []byte) {
		m, err := decode(kind(k), payload)
		if err != nil {
			return
		}
		again, err := decode(m.Kind, m.encode())
		require.NoError(t, err)
		require.Equal(t, m.encode(), again.encode())
	})
}
