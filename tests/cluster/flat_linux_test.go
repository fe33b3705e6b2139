package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/distributed/tcp"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	rm "ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/replica"
	"ringmaster/tests/cluster/harness"
)

// Many epochs in one process. The test counts what the ranks hold, so that a leak for
// each epoch cannot hide behind a cache that fills.

// flatRank is a rank in this process: its own file, backend and transport.
type flatRank struct {
	t       *testing.T
	config  cluster.Config
	file    *gguf.File
	backend *cpu.Backend
	worker  *replica.Worker // nil on rank 0
	stop    context.CancelCauseFunc
	ended   chan error
}

func (c *flatCluster) rank(rank int, coordinator string) *flatRank {
	t := c.t
	f, err := gguf.Open(c.path)
	require.NoError(t, err)
	b, err := cpu.New(1)
	require.NoError(t, err)
	return &flatRank{t: t, file: f, backend: b, config: cluster.Config{
		Hello:       cluster.Hello{Rank: rank, Size: flatSize, Build: "test", ByteOrder: "little", Model: "m", Fingerprint: "f", Kernels: "none"},
		Coordinator: coordinator, Transport: tcp.New(tcp.Options{}), ConnectTimeout: hangLimit, PeerTimeout: 20 * time.Second,
		OnLoss: cluster.Continue, RejoinAfter: time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
}

// Load, Measure and ResidentBytes implement replica.Host.
func (r *flatRank) Load(s replica.Settings, _ int) (replica.Rank, error) {
	m, err := arch.Open(r.file, r.backend, decoder.OpenOptions{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: parallel.Exact})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (r *flatRank) Measure(context.Context, *distributed.Group, replica.Rank, parallel.Placement) (calibrate.Costs, error) {
	return calibrate.Costs{}, errors.New("this group is not measured")
}

func (r *flatRank) ResidentBytes() int64 { return 0 }

func (r *flatRank) close() {
	require.NoError(r.t, r.backend.Close())
	require.NoError(r.t, r.file.Close())
}

// follow runs a rank other than 0 until leave.
func (r *flatRank) follow() {
	r.worker = replica.NewWorker(r.config.Hello.Rank, r)
	ctx, cancel := context.WithCancelCause(context.Background())
	r.stop, r.ended = cancel, make(chan error, 1)
	go func() {
		err := cluster.Follow(ctx, r.config, r.worker)
		r.ended <- errors.Join(err, r.worker.Close(context.Background()))
	}()
}

// leave ends a rank that follows.
func (r *flatRank) leave() {
	r.stop(errors.New("it leaves"))
	select {
	case err := <-r.ended:
		require.NoError(r.t, err)
	case <-time.After(hangLimit):
		require.Fail(r.t, "a rank does not end")
	}
	r.close()
}

// counts is what this process holds.
type counts struct {
	goroutines, files, mappings int
	heap                        int64 // bytes of the Go heap that are reachable
	anonymous                   int64 // bytes in memory that no file has: the Go heap, stacks, C
}

func count(t *testing.T) (c counts) {
	t.Helper()
	debug.FreeOSMemory() // collects first
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	c.goroutines, c.heap = runtime.NumGoroutine(), int64(stats.HeapAlloc)
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	c.files = len(files)
	maps := testenv.ReadFile(t, "/proc/self/maps")
	c.mappings = strings.Count(string(maps), "\n")
	roll := testenv.ReadFile(t, "/proc/self/smaps_rollup")
	for line := range strings.Lines(string(roll)) {
		if value, ok := strings.CutPrefix(line, "Anonymous:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			require.NoError(t, err)
			c.anonymous = n << 10
		}
	}
	require.Positive(t, c.anonymous)
	return c
}

func (c counts) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d mappings, heap %.2f MiB, anonymous memory %.2f MiB",
		c.goroutines, c.files, c.mappings, float64(c.heap)/(1<<20), float64(c.anonymous)/(1<<20))
}

// flatCluster is a leader with its model and its followers. Rank 1 reaches it by a proxy.
type flatCluster struct {
	t      *testing.T
	ctx    context.Context
	path   string
	leader *cluster.Leader
	model  *replica.Leader
	proxy  *harness.Proxy
	ranks  [flatSize]*flatRank
	pos    int // tokens of the sequence
}

const flatSize = 3

// flatPlanner gives each rank a larger share than the one before.
type flatPlanner struct{ file *gguf.File }

func (p *flatPlanner) Plan(members []cluster.Hello, _ replica.Past) (replica.Settings, error) {
	plan, err := arch.Plan(p.file, decoder.OpenOptions{Context: 512, MaxTokens: 32}, 2)
	if err != nil {
		return replica.Settings{}, err
	}
	shares := make([]float64, len(members))
	for i := range shares {
		shares[i] = float64(1 + i)
	}
	placement, err := parallel.Place(parallel.ShareAll, plan.Sizes, shares)
	return replica.Settings{Context: 512, MaxTokens: 32, Reduce: parallel.Exact, Placement: placement}, err
}

func (p *flatPlanner) Fits([]cluster.Hello, replica.Past) error { return nil }

func (p *flatPlanner) Reads(replica.Settings, int, *parallel.Part) int64 { return 0 }

func (p *flatPlanner) Lost([]parallel.Part) int64 { return 0 }

func (p *flatPlanner) Choose(context.Context, calibrate.Costs, []parallel.Placement) replica.Choice {
	return replica.Choice{}
}

func newFlatCluster(t *testing.T) *flatCluster {
	c := &flatCluster{t: t, ctx: testenv.Within(t, 10*hangLimit), path: model(t, slowModel)}
	c.ranks[0] = c.rank(0, "127.0.0.1:0")
	program := replica.NewProgram(c.ranks[0], &flatPlanner{c.ranks[0].file})
	var err error
	c.leader, err = cluster.Lead(t.Context(), c.ranks[0].config, program)
	require.NoError(t, err)
	c.model = replica.NewLeader(program, c.leader)
	c.proxy, err = harness.NewProxy("127.0.0.1:0", c.leader.Addr().String())
	require.NoError(t, err)
	for r, addr := range []string{1: c.proxy.Addr(), 2: c.leader.Addr().String()} {
		if r > 0 {
			c.ranks[r] = c.rank(r, addr)
			c.ranks[r].follow()
		}
	}
	require.NoError(t, c.leader.Wait(c.ctx))
	return c
}

func (c *flatCluster) close() {
	for _, r := range c.ranks[1:] {
		r.leave()
	}
	require.NoError(c.t, c.leader.Close(c.ctx, "the test is over"))
	require.NoError(c.t, c.model.Close())
	require.NoError(c.t, c.proxy.Close())
	c.ranks[0].close()
}

// run runs a step.
func (c *flatCluster) run(s rm.Step) {
	_, err := c.model.Forward(c.ctx, s)
	require.NoError(c.t, err)
	c.model.Commit(s)
}

// step continues the sequence by n tokens.
func (c *flatCluster) step(n int) {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((c.pos + i) % 7)
	}
	c.run(rm.Step{Entries: []rm.Entry{{Seq: 1, Pos: c.pos, Tokens: tokens, Want: rm.WantLast}}})
	c.pos += n
}

// restart restarts the sequence on all ranks, with enough tokens that its KV cache has a
// visible size.
func (c *flatCluster) restart() {
	c.run(rm.Step{Drop: []rm.SeqID{1}})
	c.pos = 0
	for range 4 { // with the first of them the others hear of the drop
		c.step(32)
	}
}

// untilAll runs steps until an epoch of all ranks runs that is later than another.
func (c *flatCluster) untilAll(after uint32) uint32 {
	for {
		c.step(1)
		if e, err := c.leader.Epoch(); err == nil && e.Number > after && len(e.Members) == flatSize {
			return e.Number
		}
		require.NoError(c.t, c.ctx.Err())
	}
}

// suffer makes the cluster form epochs after begin until number end.
func (c *flatCluster) suffer(after, end uint32) uint32 {
	for n := 0; after < end; n++ {
		if n%2 == 0 {
			c.proxy.Drop() // rank 1 returns with what it has
		} else { // a new rank 2, which gets the sequence
			c.ranks[2].leave()
			c.ranks[2] = c.rank(2, c.leader.Addr().String())
			c.ranks[2].follow()
		}
		after = c.untilAll(after)
		if c.pos > 400 {
			c.restart()
		}
	}
	c.restart()
	return after
}

// TestEpochsLeaveNothing: many epochs of three ranks over TCP with a live sequence, in
// which members are lost, leave, return warm and join cold, leave no goroutine, file,
// mapping or memory on any rank.
func TestEpochsLeaveNothing(t *testing.T) {
	// What the allocators of Go and C keep varies by some MiB; a leaked KV cache has two,
	// at every other epoch.
	epochs, slack := uint32(16), int64(7)
	if testenv.Rest(t, testenv.Full, "80 epochs") {
		epochs, slack = 80, 16
		if testenv.Rest(t, testenv.Exhaustive, "200 epochs") {
			epochs, slack = 200, 16
		}
	}
	c := newFlatCluster(t)
	first := c.suffer(c.untilAll(0), 8) // warms what is reused
	before := count(t)
	last := c.suffer(first, first+epochs)
	var after counts
	// Connections that have ended are closed soon, but not at once.
	require.NoError(t, harness.Until(testenv.Within(t, hangLimit), "as many goroutines and files as before", func() (bool, string) {
		after = count(t)
		return after.goroutines <= before.goroutines && after.files <= before.files, fmt.Sprintf("%v, before %v", after, before)
	}))
	t.Logf("after epoch %d: %v; after epoch %d: %v", first, before, last, after)
	const mib = 1 << 20
	require.LessOrEqual(t, after.mappings, before.mappings+30, "the C library and the Go runtime have some of their own")
	require.LessOrEqual(t, after.heap, before.heap+mib/2)
	require.LessOrEqual(t, after.anonymous, before.anonymous+slack*mib)
	c.close()
}
