package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/internal/testenv"
)

// boundaries are the sizes of the specification, 4.8, that are whole numbers of
// elements.
func boundaries(w, n, elem int64) []int64 {
	sizes := []int64{0, 1, w - 1, w, w + 1, 4095, 4096, 4097, w*4096 - 1, w * 4096, w*4096 + 1, 2*w*4096 - 1, 2*w*4096 + 1,
		32767, 32768, 32769, 65535, 65536, 65537, 524288*w - 1, 524288 * w, 524288*w + 1, 2*524288*w + 1,
		1<<31 + 8, 1<<32 + 8, 1<<33 + 24}
	for k := range int64(MaxClass + 1) {
		c := int64(Frame) << k
		sizes = append(sizes, w*c-1, w*c, w*c+1, w*(c+1), 2*w*c-1, 2*w*c, 2*w*c+1)
	}
	for _, count := range []int64{n - 1, n, n + 1, 2*n*w - 1, 2 * n * w, 2*n*w + 1, 1000*n + 1, 10007, 99991} {
		sizes = append(sizes, count*elem)
	}
	seen := map[int64]bool{}
	var out []int64
	for _, s := range sizes {
		if s -= s % elem; !seen[s] && s >= 0 {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

var ofSize = []distributed.DType{distributed.Int8, distributed.Float16, distributed.Float32, distributed.Int64}

// everyPlan plans all operations over all boundary sizes.
func everyPlan(t *testing.T, f func(p *Plan)) {
	count, turn := 0, 0
	for n := 2; n <= 5; n++ {
		for rails := 1; rails <= 4; rails++ {
			for _, topo := range []Topology{Mesh(n, rails), Ring(n, rails)} {
				for _, dt := range ofSize {
					elem := int64(dt.Size())
					cfg := Config{Topology: topo, Cap: MaxClass}
					for _, size := range boundaries(int64(rails), int64(n), elem) {
						requests := []Request{{Op: AllSum, DType: dt, Bytes: size}, {Op: ReduceScatter, DType: dt, Bytes: size}}
						if elem == 1 {
							requests = append(requests, Request{Op: AllGather, Bytes: size}, Request{Op: Broadcast, Bytes: size, Root: 1},
								Request{Op: Send, Bytes: size, From: 0, To: 1},
								Request{Op: Gather, Sizes: unequal(size, n), Root: n - 1})
						}
						for _, req := range requests {
							// Every size is planned for every n and rails, by
							// the operations and types in turn.
							if turn++; turn%3 != 0 {
								continue
							}
							if size > 1<<31 && req.Op != Send && req.Op != AllSum {
								continue // widths of offsets show in these
							}
							with := cfg
							if turn%2 == 0 && size < 1<<31 {
								with.Cap = count % (MaxClass + 1)
								with = inside(with)
							}
							p, err := New(with, req)
							require.NoError(t, err)
							f(p)
							count++
						}
					}
				}
			}
		}
	}
	t.Logf("%d plans", count)
}

// inside is a configuration with the tag within its messages, as bring-ups make
// it if the longest messages do not arrive.
func inside(c Config) Config {
	c.Tag, c.Inside, c.Slots = 8, true, Window(c.Cap)
	return c
}

// unequal are parts up to a size, one of them empty.
func unequal(size int64, n int) []int64 {
	sizes := make([]int64, n)
	for r := range sizes {
		sizes[r] = size * int64(r) / int64(n-1)
	}
	return sizes
}

// TestPlansAtTheBoundaries: no block of the result is written twice or not at
// all, both ends of a wire walk the same messages, no more receives are posted
// than messages will arrive, and the frames in flight are within the depth.
func TestPlansAtTheBoundaries(t *testing.T) {
	testenv.Need(t, testenv.Full, "plans of all sizes at which they change")
	everyPlan(t, func(p *Plan) {
		n := p.Config.Topology.N
		written := make([][]region, n)
		for _, prog := range p.Programs {
			require.NoError(t, prog.validate(), "%v", p)
			wires := prog.wires()
			for r := range n {
				l := prog.Local(r)
				for _, w := range l.Sends {
					require.Equal(t, wires[r][w.Peer], w.Messages)
					sameMessages(t, l, w, prog.Local(w.Peer))
				}
				for _, w := range l.Recvs {
					require.Equal(t, wires[w.Peer][r], w.Messages)
					neverOverposts(t, w.Messages, p.Config.Slots)
				}
				for i := range l.Ops {
					if o := &l.Ops[i]; o.Kind != LocalSend && o.Write.Space == Dst {
						written[r] = append(written[r], region{off: o.Write.Off, n: o.Elems * int64(p.Elem)})
					}
				}
			}
		}
		require.LessOrEqual(t, p.Class, p.Config.Cap)
		for r := range n {
			want := p.Request.Bytes
			if p.Request.Op == AllGather {
				want *= int64(n)
			}
			if p.Request.Op == Gather {
				last, size := p.Request.part(n - 1)
				want = last + size
			}
			if p.Request.Op == Gather && r != p.Request.Root || p.Request.Op == Send && r != p.Request.To || p.Request.Op == Broadcast && r == p.Request.Root {
				want = 0
			}
			partition(t, written[r], want, p)
		}
	})
}

// TestBoundarySizesAreRight executes plans of the boundary sizes that are short
// enough, in and out of place: the operations, types and algorithms in turn.
func TestBoundarySizesAreRight(t *testing.T) {
	turn := uint64(0)
	for n := int64(2); n <= 5; n++ {
		for rails := int64(1); rails <= 4; rails++ {
			for _, size := range boundaries(rails, n, 8) {
				if size > 70000 {
					continue
				}
				turn++
				topo := Ring(int(n), int(rails))
				if turn%2 == 0 {
					topo = Mesh(int(n), int(rails))
				}
				cfg := Config{Topology: topo, Cap: int(turn % 5), OneRail: int64(turn%3) - 1}
				if turn%4 < 2 {
					cfg = inside(cfg)
				}
				dt := ofSize[turn/2%4]
				req := Request{Op: []Collective{AllSum, ReduceScatter, AllMin}[turn%3], DType: dt, Bytes: size}
				all := ways(t, cfg, req)
				req.Force = all[int(turn/3)%len(all)]
				check(t, cfg, req, turn%2 == 0, turn)
				req = Request{Op: []Collective{AllGather, Broadcast, Send}[turn%3], Bytes: size, To: 1}
				check(t, cfg, req, turn%4 == 0, turn)
			}
		}
	}
	t.Logf("%d sizes", turn)
}

// partition checks that the regions cover [0, n) exactly once.
func partition(t *testing.T, parts []region, n int64, p *Plan) {
	starts := map[int64]int64{}
	var total int64
	for _, g := range parts {
		_, twice := starts[g.off]
		require.False(t, twice, "%v", p)
		starts[g.off] = g.n
		total += g.n
	}
	require.Equal(t, n, total, "%v", p)
	for at := int64(0); at < n; at += starts[at] {
		require.Positive(t, starts[at], "a hole at %d: %v", at, p)
	}
}

// sameMessages walks both ends of a wire, for the first messages.
func sameMessages(t *testing.T, from *Local, w Wire, to *Local) {
	for _, r := range to.Recvs {
		if r.Peer != from.Rank {
			continue
		}
		a, b := from.Walk(w), to.Walk(r)
		for range 200 {
			i, c, ok := a.Next()
			j, d, also := b.Next()
			require.Equal(t, ok, also)
			if !ok {
				return
			}
			require.Equal(t, from.Ops[i].ChunkLen(c), to.Ops[j].ChunkLen(d))
			require.Equal(t, from.Ops[i].Wide, to.Ops[j].Wide)
		}
		return
	}
	require.Fail(t, "no rank receives")
}

// neverOverposts counts receives against messages.
func neverOverposts(t *testing.T, count int64, slots int) {
	if count > 1000 {
		return // the rule uses only differences
	}
	posted := int64(prepost(count, slots))
	for i := range count {
		require.Greater(t, posted, i, "a message without a receive")
		if postsNext(i, count, slots) {
			posted++
		}
		require.LessOrEqual(t, posted, count)
	}
	require.Equal(t, count, posted)
}

// oldPosts is how many receives the rule of mlx #3654 posted on a wire first: it
// compared a count from the beginning of the wire's piece with the absolute end
// of the piece.
func oldPosts(n, rails, wire, slots, message int64) int64 {
	each := ceil(n, rails)
	end := min((wire+1)*each, n)
	return min(slots, ceil(end, message))
}

// TestReceivesOfTheOldRule: for exactly the sizes that hung (specification, 4.8)
// the old rule posts a receive for which no message arrives, and this plan never
// does.
func TestReceivesOfTheOldRule(t *testing.T) {
	hung := map[int64][]int64{
		2: {1, 4097, 5000, 8191, 8192, 16384, 16385, 65536},
		3: {1, 2, 4, 8192, 12288},
		4: {1, 2, 3, 8192, 16384},
	}
	passed := map[int64][]int64{1: {1, 4096, 4097, 65536, 524289}, 2: {4096}, 3: {4096, 65536}, 4: {4096}}
	overposts := func(rails, n int64) (old, ours bool) {
		p, err := New(Config{Topology: Ring(3, int(rails)), Cap: MaxClass, OneRail: -1}, Request{Op: Send, Bytes: n, From: 0, To: 1})
		require.NoError(t, err)
		require.Len(t, p.Programs, int(rails))
		for w, prog := range p.Programs {
			count := prog.wires()[0][1]
			old = old || oldPosts(n, rails, int64(w), 2, p.ChunkElems) > count
			ours = ours || int64(prepost(count, 2)) > count
		}
		return old, ours
	}
	for rails, sizes := range hung {
		for _, n := range sizes {
			old, ours := overposts(rails, n)
			require.True(t, old, "%d rails, %d bytes", rails, n)
			require.False(t, ours, "%d rails, %d bytes", rails, n)
		}
	}
	for rails, sizes := range passed {
		for _, n := range sizes {
			old, ours := overposts(rails, n)
			require.False(t, old, "%d rails, %d bytes", rails, n)
			require.False(t, ours, "%d rails, %d bytes", rails, n)
		}
	}
}

func TestClassAndWindow(t *testing.T) {
	for _, c := range []struct {
		n     int64
		limit int
		want  int
	}{{0, 7, 0}, {4096, 7, 0}, {8191, 7, 0}, {8192, 7, 1}, {8192, 0, 0}, {14336, 7, 1}, {28672, 7, 2}, {524287, 7, 6}, {524288, 7, 7}, {1 << 40, 7, 7}, {1 << 40, 3, 3}} {
		require.Equal(t, c.want, Config{Cap: c.limit, Tag: 8}.class(c.n), "%d bytes, cap %d", c.n, c.limit)
	}
	for _, c := range []struct {
		n    int64
		want int
	}{{1, 0}, {4088, 0}, {8183, 0}, {8184, 1}, {16375, 1}, {16376, 2}, {524279, 6}, {524280, 7}, {1 << 40, 7}} {
		require.Equal(t, c.want, Config{Cap: 7, Tag: 8, Inside: true}.class(c.n), "%d bytes, the tag inside", c.n)
	}
	for k := range MaxClass + 1 {
		require.LessOrEqual(t, Window(k), MaxSlots)
		require.GreaterOrEqual(t, Window(k), DefaultSlots)
		require.LessOrEqual(t, Window(k)<<k, 256)
	}
}

func TestWrongRequests(t *testing.T) {
	good := Config{Topology: Ring(4, 2), Cap: 7}
	for _, c := range []struct {
		cfg  Config
		req  Request
		want error
		text string
	}{
		{good, Request{Op: AllSum, Bytes: 6, DType: distributed.Float32}, distributed.ErrArgument, "not a whole number"},
		{good, Request{Op: AllSum, Bytes: 6, DType: 99}, distributed.ErrArgument, "unknown dtype 99"},
		{good, Request{Op: 77}, distributed.ErrArgument, "unknown"},
		{good, Request{Op: AllGather, Bytes: -1}, distributed.ErrArgument, "-1 bytes"},
		{good, Request{Op: AllGatherV, Sizes: []int64{1, 2}}, distributed.ErrArgument, "2 sizes for 4 ranks"},
		{good, Request{Op: AllGatherV, Sizes: []int64{1, 2, -3, 4}}, distributed.ErrArgument, "size -3 of rank 2"},
		{good, Request{Op: Gather, Sizes: []int64{1, 2, 3}}, distributed.ErrArgument, "3 sizes for 4 ranks"},
		{good, Request{Op: Gather, Sizes: []int64{1, 2, 3, 4}, Root: -1}, distributed.ErrArgument, "root -1"},
		{good, Request{Op: ReduceScatter, DType: distributed.Float16, Sizes: []int64{1, 2, 2, 2}}, distributed.ErrArgument, "not a whole number"},
		{good, Request{Op: Broadcast, Root: 4}, distributed.ErrArgument, "root 4"},
		{good, Request{Op: Send, From: 1, To: 1}, distributed.ErrArgument, "from rank 1 to rank 1"},
		{good, Request{Op: Send, Bytes: 5, From: 1, To: 3}, ErrNoWire, "rank 1 to rank 3"},
		{good, Request{Op: Broadcast, Force: Chain}, distributed.ErrArgument, "only by [spread]"},
		{Config{Topology: Mesh(1, 1)}, Request{}, distributed.ErrConfig, "1 ranks"},
		{Config{Topology: Mesh(2, 0)}, Request{}, distributed.ErrConfig, "0 rails"},
		{Config{Topology: Topology{N: 3, Rails: 1, Ring: []int{0, 1, 1}}}, Request{}, distributed.ErrConfig, "not an order"},
		{Config{Topology: Topology{N: 2, Rails: 1, Cables: [][]int{{0, 2}}}}, Request{}, distributed.ErrConfig, "cables [[0 2]] of 2 ranks"},
		{Config{Topology: Topology{N: 2, Rails: 1, Cables: [][]int{{0, 2}, {2}}}}, Request{}, distributed.ErrConfig, "cables"},
		{Config{Topology: Topology{N: 2, Rails: 1, Cables: [][]int{{0, 2}, {1, 0}}}}, Request{}, distributed.ErrConfig, "cables"},
		{Config{Topology: Topology{N: 2, Rails: 2, Cables: [][]int{{0, 1}, {1, 0}}}}, Request{}, distributed.ErrConfig, "at least 2 rails"},
		{Config{Topology: Mesh(2, 1), Cap: 8}, Request{}, distributed.ErrConfig, "size class 8"},
		{Config{Topology: Mesh(2, 1), Slots: MaxSlots + 1}, Request{}, distributed.ErrConfig, "65 slots"},
		{Config{Topology: Mesh(2, 1), Tag: 4}, Request{}, distributed.ErrConfig, "a tag of 4 bytes"},
	} {
		_, err := New(c.cfg, c.req)
		require.ErrorIs(t, err, c.want, fmt.Sprint(c.req))
		require.ErrorContains(t, err, c.text)
	}
}
