package mpi

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/internal/testenv"
)

// launchLimit bounds the start and the end of a job.
const launchLimit = time.Minute

// needMPI skips the test if MPI is not installed.
func needMPI(t testing.TB) {
	t.Helper()
	testenv.NeedTool(t, "mpirun", "no mpirun here (Debian: openmpi-bin libopenmpi-dev)")
}

// mpirun returns a command that starts n processes on this host. Tests may run
// as root, with more ranks than processors.
func mpirun(ctx context.Context, n int, args ...string) *exec.Cmd {
	all := append([]string{"--oversubscribe", "--bind-to", "none", "-n", fmt.Sprint(n)}, args...)
	cmd := exec.CommandContext(ctx, "mpirun", all...)
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// job is n ranks started by mpirun, and the test's side of the connections to
// them.
type job struct {
	ranks  []*peer
	epoch  uint32
	groups int
	ended  chan error
	log    *bytes.Buffer
	stop   context.CancelFunc
}

// peer is a rank as the test sees it.
type peer struct {
	conn net.Conn

	mu       sync.Mutex // guards out and all fields below
	out      *gob.Encoder
	last     uint64
	open     map[uint64]chan answer
	gone     error
	contexts map[context.Context]uint64
	causes   map[uint64]error
	errors   map[uint64]error
}

// launch starts a job of n ranks, with env added to the environment.
func launch(t testing.TB, n int, env ...string) *job {
	t.Helper()
	needMPI(t)
	dir, err := os.MkdirTemp("", "rm") // short, because the path of a socket has a maximum length
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", at)
	require.NoError(t, err)
	defer ln.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	j := &job{ranks: make([]*peer, n), ended: make(chan error, 1), log: &bytes.Buffer{}, stop: stop}
	cmd := mpirun(ctx, n, self)
	cmd.Env = append(append(cmd.Env, env...), socketVariable+"="+at)
	cmd.Stdout, cmd.Stderr = j.log, j.log
	require.NoError(t, cmd.Start())
	go func() {
		j.ended <- cmd.Wait()
		ln.Close()
	}()
	require.NoError(t, ln.(*net.UnixListener).SetDeadline(time.Now().Add(launchLimit)))
	for range n {
		c, err := ln.Accept()
		if err != nil {
			stop()
			err = errors.Join(err, <-j.ended)
		}
		require.NoError(t, err, "%s", j.log)
		in := gob.NewDecoder(c)
		var first answer
		require.NoError(t, in.Decode(&first))
		p := &peer{conn: c, out: gob.NewEncoder(c), open: map[uint64]chan answer{},
			contexts: map[context.Context]uint64{}, causes: map[uint64]error{}, errors: map[uint64]error{}}
		require.Nil(t, j.ranks[first.Rank], "two ranks %d", first.Rank)
		j.ranks[first.Rank] = p
		go p.read(in)
	}
	return j
}

// end ends the job; every rank must have finalized MPI.
func (j *job) end(t testing.TB) {
	for _, p := range j.ranks {
		p.conn.(*net.UnixConn).CloseWrite()
	}
	defer j.stop()
	select {
	case err := <-j.ended:
		require.NoError(t, err, "%s", j.log)
	case <-time.After(launchLimit):
		j.stop()
		require.Fail(t, "the job does not end", "%v", <-j.ended)
	}
}

// read forwards the answers to the calls that wait for them.
func (p *peer) read(in *gob.Decoder) {
	for {
		var a answer
		err := in.Decode(&a)
		p.mu.Lock()
		if err != nil {
			p.gone = fmt.Errorf("the process has ended: %w", err)
			for _, c := range p.open {
				close(c)
			}
			p.open = nil
			p.mu.Unlock()
			return
		}
		c := p.open[a.ID]
		delete(p.open, a.ID)
		p.mu.Unlock()
		c <- a
	}
}

// call makes the rank do something.
func (p *peer) call(q request) (answer, error) {
	p.mu.Lock()
	if p.gone != nil {
		defer p.mu.Unlock()
		return answer{}, p.gone
	}
	p.last++
	q.ID = p.last
	c := make(chan answer, 1)
	p.open[q.ID] = c
	err := p.out.Encode(q)
	p.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	a, ok := <-c
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok {
		return answer{}, p.gone
	}
	if a.Err == nil {
		return a, nil
	}
	if p.errors[a.Err.ID] == nil {
		p.errors[a.Err.ID] = unpack(a.Err, p.causes[a.Err.Cause])
	}
	return a, p.errors[a.Err.ID]
}

// give assigns a number to an error that is sent to the rank.
func (p *peer) give(err error) failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.causes[p.last] = err
	f := *pack(err)
	f.Cause = p.last
	return f
}

// context makes a context on the rank that ends when ctx ends, and returns its
// number.
func (p *peer) context(ctx context.Context) uint64 {
	if ctx.Done() == nil {
		return 0
	}
	p.mu.Lock()
	id, known := p.contexts[ctx]
	if !known {
		p.last++
		id = p.last
		p.contexts[ctx] = id
	}
	p.mu.Unlock()
	end := func() { _, _ = p.call(request{Do: "cancel", Context: id, Cause: p.give(context.Cause(ctx))}) }
	if ctx.Err() != nil {
		end()
	} else if !known {
		context.AfterFunc(ctx, end)
	}
	return id
}

// group is a group of a rank as the test sees it.
type group struct {
	*peer
	rank, size, id int
}

// connect makes the groups of one epoch.
func (j *job) connect(t testing.TB, s setup) []grouptest.Group {
	t.Helper()
	j.epoch++
	groups := make([]grouptest.Group, len(j.ranks))
	errs := j.connectEach(s, func(int, *request) {})
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
		groups[r] = &group{j.ranks[r], r, len(j.ranks), j.groups}
	}
	t.Cleanup(func() {
		for _, g := range groups {
			require.NoError(t, g.Close())
		}
	})
	return groups
}

// connectEach asks all ranks to connect; change edits the request of each rank.
func (j *job) connectEach(s setup, change func(r int, q *request)) []error {
	j.groups++
	s.Size = len(j.ranks)
	s.GroupID = "test"
	for r := range j.ranks {
		s.Addrs = append(s.Addrs, fmt.Sprintf("mpi:here/%d", r))
	}
	errs := make([]error, len(j.ranks))
	var all sync.WaitGroup
	for r, p := range j.ranks {
		all.Go(func() {
			q := request{Do: "connect", Group: j.groups, Epoch: j.epoch, Setup: s, Token: bytes.Repeat([]byte{7}, 32)}
			change(r, &q)
			if q.Do == "connect" {
				_, errs[r] = p.call(q)
			}
		})
	}
	all.Wait()
	return errs
}

// spread places two slices in an arena with the overlap that they have here:
// within one array, or apart.
func spread(dst, src []byte) (arena []byte, d, s place) {
	at := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
	d, s = place{0, len(dst)}, place{len(dst), len(src)}
	if len(dst) > 0 && len(src) > 0 && at(src) < at(dst)+uintptr(len(dst)) && at(dst) < at(src)+uintptr(len(src)) {
		low := min(at(dst), at(src))
		d.At, s.At = int(at(dst)-low), int(at(src)-low)
	}
	arena = make([]byte, max(d.At+d.Len, s.At+s.Len))
	copy(arena[d.At:], dst)
	copy(arena[s.At:], src)
	return arena, d, s
}

// ask makes the rank perform an operation of the group with dst and src.
func (g *group) ask(ctx context.Context, do string, dst, src []byte, q request) error {
	q.Do, q.Group, q.Context = do, g.id, g.context(ctx)
	q.Arena, q.Dst, q.Src = spread(dst, src)
	a, err := g.call(q)
	if err == nil {
		copy(dst, a.Dst)
	}
	return err
}

func (g *group) Rank() int    { return g.rank }
func (g *group) Size() int    { return g.size }
func (g *group) Kind() string { return "mpi" }

func (g *group) AllSum(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.ask(ctx, "all_sum", dst, src, request{DType: uint8(dt)})
}
func (g *group) AllMax(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.ask(ctx, "all_max", dst, src, request{DType: uint8(dt)})
}
func (g *group) AllMin(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.ask(ctx, "all_min", dst, src, request{DType: uint8(dt)})
}
func (g *group) AllGather(ctx context.Context, dst, src []byte) error {
	return g.ask(ctx, "all_gather", dst, src, request{})
}
func (g *group) AllGatherV(ctx context.Context, dst []byte, sizes []int) error {
	return g.ask(ctx, "all_gather_v", dst, nil, request{Sizes: sizes})
}
func (g *group) ReduceScatter(ctx context.Context, dst, src []byte, sizes []int, dt distributed.DType) error {
	return g.ask(ctx, "reduce_scatter", dst, src, request{Sizes: sizes, DType: uint8(dt)})
}
func (g *group) Gather(ctx context.Context, dst, src []byte, sizes []int, root int) error {
	return g.ask(ctx, "gather", dst, src, request{Sizes: sizes, To: root})
}
func (g *group) Send(ctx context.Context, src []byte, to int) error {
	return g.ask(ctx, "send", nil, src, request{To: to})
}
func (g *group) Recv(ctx context.Context, dst []byte, from int) error {
	return g.ask(ctx, "recv", dst, nil, request{From: from})
}
func (g *group) SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error {
	return g.ask(ctx, "send_recv", dst, src, request{From: from, To: to})
}
func (g *group) Broadcast(ctx context.Context, buf []byte, root int) error {
	return g.ask(ctx, "broadcast", buf, nil, request{To: root})
}
func (g *group) Barrier(ctx context.Context) error {
	return g.ask(ctx, "barrier", nil, nil, request{})
}

// waiting is an operation that was started and not yet waited for.
type waiting struct {
	g   *group
	id  uint64
	dst []byte
	err error
}

func (w *waiting) Wait() error {
	if w.err != nil {
		return w.err
	}
	a, err := w.g.call(request{Do: "wait", Group: int(w.id)})
	copy(w.dst, a.Dst)
	return err
}

func (g *group) start(ctx context.Context, do string, dst, src []byte, q request) grouptest.Pending {
	q.Do, q.Group, q.Context = do, g.id, g.context(ctx)
	q.Arena, q.Dst, q.Src = spread(dst, src)
	a, err := g.call(q)
	return &waiting{g, a.ID, dst, err}
}

func (g *group) StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) grouptest.Pending {
	return g.start(ctx, "start_all_sum", dst, src, request{DType: uint8(dt)})
}
func (g *group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) grouptest.Pending {
	return g.start(ctx, "start_all_gather_v", dst, nil, request{Sizes: sizes})
}
func (g *group) StartReduceScatter(ctx context.Context, dst, src []byte, sizes []int, dt distributed.DType) grouptest.Pending {
	return g.start(ctx, "start_reduce_scatter", dst, src, request{Sizes: sizes, DType: uint8(dt)})
}
func (g *group) StartGather(ctx context.Context, dst, src []byte, sizes []int, root int) grouptest.Pending {
	return g.start(ctx, "start_gather", dst, src, request{Sizes: sizes, To: root})
}

// Split splits the group on the rank, which keeps the child under a number of
// its own.
func (g *group) Split(ctx context.Context, color, key int) (grouptest.Group, error) {
	a, err := g.call(request{Do: "split", Group: g.id, Context: g.context(ctx), Color: color, Key: key})
	if err != nil || a.Size == 0 {
		return nil, err
	}
	return &group{g.peer, a.Rank, a.Size, -int(a.ID)}, nil
}

func (g *group) Fail(cause error) {
	_, _ = g.call(request{Do: "fail", Group: g.id, Cause: g.give(cause)})
}
func (g *group) Stats() distributed.Stats {
	a, _ := g.call(request{Do: "stats", Group: g.id})
	return a.Stats
}
func (g *group) Close() error {
	_, err := g.call(request{Do: "close", Group: g.id})
	return err
}
