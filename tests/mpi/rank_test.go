package mpi

import (
	"context"
	"encoding/gob"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/mpi"
)

// socketVariable names the test's socket; a process that has it in its
// environment is a rank.
const socketVariable = "RINGMASTER_TEST_MPI_SOCKET"

func TestMain(m *testing.M) {
	if at := os.Getenv(socketVariable); at != "" {
		if err := serve(at); err != nil {
			fmt.Fprintln(os.Stderr, "rank:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if build.path != "" {
		os.RemoveAll(filepath.Dir(build.path))
	}
	os.Exit(code)
}

// rank is one process of the job.
type rank struct {
	world *mpi.World
	out   *gob.Encoder

	mu       sync.Mutex // guards all fields below, and out
	groups   map[int]*distributed.Group
	started  map[int]*started
	contexts map[uint64]context.CancelCauseFunc
	lives    map[uint64]context.Context
	errors   map[error]uint64
	last     uint64
}

type started struct {
	pending distributed.Pending
	dst     []byte
}

// serve is the main function of a rank: it does what the test requests.
func serve(at string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := mpi.Open(ctx, mpi.Options{})
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := &rank{
		world: w, out: gob.NewEncoder(conn),
		groups: map[int]*distributed.Group{}, started: map[int]*started{},
		contexts: map[uint64]context.CancelCauseFunc{}, lives: map[uint64]context.Context{}, errors: map[error]uint64{},
	}
	if err := r.out.Encode(answer{Rank: w.Rank(), Text: fmt.Sprint(w.Size(), " ", w.Host(), " ", w.Version())}); err != nil {
		return err
	}
	in := gob.NewDecoder(conn)
	for {
		var q request
		if err := in.Decode(&q); err != nil {
			return w.Close() // the test is over
		}
		go r.handle(q)
	}
}

func (r *rank) handle(q request) {
	a, err := r.do(&q)
	a.ID = q.ID
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		a.Err = pack(err)
		a.Err.ID = r.errors[err]
		if a.Err.ID == 0 {
			r.last++
			a.Err.ID = r.last
			if _, ok := err.(*distributed.OpError); ok {
				r.errors[err] = r.last
			}
		}
	}
	_ = r.out.Encode(a) // fails only if the test is over and needs no answer
}

// context returns the context that the test has given a number.
func (r *rank) context(q *request) context.Context {
	if q.Context == 0 {
		return context.Background()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lives[q.Context] == nil {
		r.lives[q.Context], r.contexts[q.Context] = context.WithCancelCause(context.Background())
	}
	return r.lives[q.Context]
}

func (r *rank) do(q *request) (a answer, err error) {
	switch q.Do {
	case "cancel":
		r.context(q)
		r.mu.Lock()
		r.contexts[q.Context](&given{q.Cause})
		r.mu.Unlock()
		return a, nil
	case "connect":
		return a, r.connect(q)
	case "coordinator":
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		a.Text, err = r.world.Coordinator(ctx, q.Address)
		return a, err
	}
	r.mu.Lock()
	g, s := r.groups[q.Group], r.started[q.Group]
	r.mu.Unlock()
	dst, src := q.Dst.of(q.Arena), q.Src.of(q.Arena)
	dt := distributed.DType(q.DType)
	ctx := r.context(q)
	a.Dst = dst
	switch q.Do {
	case "all_sum":
		return a, g.AllSum(ctx, dst, src, dt)
	case "all_max":
		return a, g.AllMax(ctx, dst, src, dt)
	case "all_min":
		return a, g.AllMin(ctx, dst, src, dt)
	case "all_gather":
		return a, g.AllGather(ctx, dst, src)
	case "reduce_scatter":
		return a, g.ReduceScatter(ctx, dst, src, q.Sizes, dt)
	case "all_gather_v":
		return a, g.AllGatherV(ctx, dst, q.Sizes)
	case "gather":
		return a, g.Gather(ctx, dst, src, q.Sizes, q.To)
	case "send":
		return a, g.Send(ctx, src, q.To)
	case "recv":
		return a, g.Recv(ctx, dst, q.From)
	case "send_recv":
		return a, g.SendRecv(ctx, dst, q.From, src, q.To)
	case "broadcast":
		return a, g.Broadcast(ctx, dst, q.To)
	case "barrier":
		return a, g.Barrier(ctx)
	case "start_all_sum", "start_all_gather_v", "start_reduce_scatter", "start_gather":
		a.Dst = nil
		s := &started{dst: dst}
		switch strings.TrimPrefix(q.Do, "start_") {
		case "all_sum":
			s.pending = g.StartAllSum(ctx, dst, src, dt)
		case "all_gather_v":
			s.pending = g.StartAllGatherV(ctx, dst, q.Sizes)
		case "reduce_scatter":
			s.pending = g.StartReduceScatter(ctx, dst, src, q.Sizes, dt)
		case "gather":
			s.pending = g.StartGather(ctx, dst, src, q.Sizes, q.To)
		}
		r.mu.Lock()
		r.started[int(q.ID)] = s // the test waits for it by the id of the request that started it
		r.mu.Unlock()
		return a, nil
	case "wait":
		err = s.pending.Wait()
		a.Dst = s.dst
		return a, err
	case "split":
		child, err := g.Split(ctx, q.Color, q.Key)
		if err != nil || child == nil {
			return a, err
		}
		r.mu.Lock()
		r.groups[-int(q.ID)] = child // numbers above 0 are groups made by Connect
		r.mu.Unlock()
		a.Rank, a.Size = child.Rank(), child.Size()
		return a, nil
	case "fail":
		g.Fail(&given{q.Cause})
		return a, nil
	case "stats":
		a.Stats = g.Stats()
		return a, nil
	case "close":
		return a, g.Close()
	case "bench":
		a.Lasted, err = combine(ctx, g, len(q.Arena), q.Count)
		return a, err
	}
	return a, fmt.Errorf("%s: unknown request", q.Do)
}

func (r *rank) connect(q *request) error {
	limit := 10 * time.Second
	if q.Setup.Limit > 0 {
		limit = q.Setup.Limit
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	t := mpi.New(r.world, mpi.Options{Threshold: q.Setup.Threshold, First: q.Setup.First, Piece: q.Setup.Piece, Spin: q.Setup.Spin})
	g, err := t.Connect(ctx, distributed.Link{
		Rank: r.world.Rank(), Size: q.Setup.Size, GroupID: q.Setup.GroupID, Epoch: q.Epoch, Token: q.Token, Addrs: q.Setup.Addrs,
		OpTimeout: q.Setup.OpTimeout,
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.groups[q.Group] = g
	r.mu.Unlock()
	return nil
}

// combine times n rounds of StartAllSum and Wait with float16 elements.
func combine(ctx context.Context, g *distributed.Group, size, n int) (time.Duration, error) {
	src, dst := make([]byte, size), make([]byte, size)
	if err := g.Barrier(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	for range n {
		if err := g.StartAllSum(ctx, dst, src, distributed.Float16).Wait(); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}
