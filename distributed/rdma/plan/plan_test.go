package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
	"ringmaster/internal/testenv"
)

// check runs a request on random data and compares the result with the
// reference.
func check(t *testing.T, cfg Config, req Request, inPlace bool, seed uint64) *Plan {
	t.Helper()
	p, err := New(cfg, req)
	require.NoError(t, err)
	for _, prog := range p.Programs {
		require.NoError(t, prog.validate(), "%v", p)
	}
	n := p.Config.Topology.N
	rng := rand.New(rand.NewPCG(seed, 1))
	random := func(bytes int64) []byte {
		b := make([]byte, bytes)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	src, dst, want := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	switch req.Op {
	case AllSum, AllMax, AllMin:
		out := make([]byte, req.Bytes)
		for r := range n {
			src[r], want[r] = random(req.Bytes), out
		}
		reduce.Reduce(map[Collective]reduce.Op{AllSum: reduce.Sum, AllMax: reduce.Max, AllMin: reduce.Min}[req.Op],
			req.DType, out, src...)
		for r := range n {
			dst[r] = src[r]
			if !inPlace {
				dst[r] = random(req.Bytes)
			}
		}
	case ReduceScatter:
		last, size := req.part(n - 1)
		for r := range n {
			_, own := req.part(r)
			src[r], dst[r] = random(last+size), random(own)
		}
		for r := range n {
			start, own := req.part(r)
			want[r] = make([]byte, own)
			var blocks [][]byte
			for s := range n {
				blocks = append(blocks, src[s][start:start+own])
			}
			reduce.Reduce(reduce.Sum, req.DType, want[r], blocks...)
		}
	case AllGather, AllGatherV:
		var all []byte
		for r := range n {
			size := req.Bytes
			if req.Op == AllGatherV {
				size = req.Sizes[r]
			}
			src[r] = random(size)
			all = append(all, src[r]...)
		}
		at := 0
		for r := range n {
			want[r], dst[r] = all, random(int64(len(all)))
			if inPlace || req.Op == AllGatherV {
				copy(dst[r][at:], src[r])
				at += len(src[r])
				src[r] = dst[r][at-len(src[r]) : at]
			}
		}
	case Gather:
		var all []byte
		for r := range n {
			src[r] = random(req.Sizes[r])
			all = append(all, src[r]...)
		}
		want[req.Root], dst[req.Root] = all, random(int64(len(all)))
		if inPlace {
			start, own := req.part(req.Root)
			src[req.Root] = dst[req.Root][start : start+own]
			copy(src[req.Root], all[start:])
		}
	case Broadcast:
		for r := range n {
			dst[r] = random(req.Bytes)
		}
		for r := range n {
			want[r] = append([]byte(nil), dst[req.Root]...)
		}
	case Send:
		src[req.From] = random(req.Bytes)
		dst[req.To], want[req.To] = random(req.Bytes), src[req.From]
	case Barrier:
	}
	simulate(t, p, src, dst, seed)
	for r := range n {
		if want[r] != nil && string(want[r]) != string(dst[r]) {
			require.Failf(t, "wrong result", "rank %d: %v", r, p)
		}
	}
	return p
}

// topologies are those of n ranks: mesh, ring, and a ring in another order.
func topologies(n, rails int) []Topology {
	all := []Topology{Mesh(n, rails), Ring(n, rails)}
	if n > 3 {
		other := Ring(n, rails)
		other.Ring[1], other.Ring[2] = other.Ring[2], other.Ring[1]
		turned := Ring(n, rails)
		for i := range turned.Ring {
			turned.Ring[i] = (2*n - 2 - i) % n // backward, from the last but one
		}
		all = append(all, other, turned)
	}
	return all
}

// ways are all algorithms that a request can force.
func ways(t *testing.T, cfg Config, req Request) []Algorithm {
	filled, err := cfg.fill()
	require.NoError(t, err)
	all, err := algorithmsFor(filled, req)
	require.NoError(t, err)
	return append(all, Auto)
}

func TestEveryOperationGivesTheReference(t *testing.T) {
	seed, most := uint64(0), 4
	if testenv.Rest(t, testenv.Full, "five and six ranks") {
		most = 6
	}
	for n := 2; n <= most; n++ {
		for rails := 1; rails <= 3; rails++ {
			for _, topo := range topologies(n, rails) {
				cfg := Config{Topology: topo, Cap: 0, OneRail: -1}
				if (n+rails)%2 == 0 {
					cfg = inside(cfg)
				}
				for dt := distributed.Bool; dt <= distributed.Complex64; dt++ {
					elem := int64(dt.Size())
					for _, op := range []Collective{AllSum, AllMax, AllMin, ReduceScatter} {
						if (int(op)+int(dt)+n+rails)%3 != 0 && dt != distributed.BFloat16 {
							continue // one in three; the types with wide sums always
						}
						req := Request{Op: op, DType: dt, Bytes: elem * (1 + int64(seed*7919%4001))}
						for _, way := range ways(t, cfg, req) {
							req.Force = way
							seed++
							check(t, cfg, req, seed%3 == 0, seed)
						}
					}
				}
				sizes := make([]int64, n)
				for r := range sizes {
					sizes[r] = int64(r * 5000 % 17001)
				}
				even := make([]int64, n) // whole elements of two bytes
				for r := range even {
					even[r] = sizes[r] &^ 1
				}
				for _, req := range []Request{{Op: Gather, Sizes: sizes, Root: n - 1}, {Op: Gather, Sizes: sizes}, {Op: Gather, Sizes: even, Root: n / 2},
					{Op: ReduceScatter, Sizes: even, DType: distributed.BFloat16}, {Op: ReduceScatter, Sizes: even, DType: distributed.Int16},
					{Op: AllGather, Bytes: 4097}, {Op: AllGather, Bytes: 30001}, {Op: AllGatherV, Sizes: sizes},
					{Op: Broadcast, Bytes: 70001, Root: n - 1}, {Op: Send, Bytes: 50001, From: topo.path(0, n-1, 0)[0], To: 0}, {Op: Barrier}} {
					seed++
					check(t, cfg, req, seed%2 == 0, seed)
				}
			}
		}
	}
}
