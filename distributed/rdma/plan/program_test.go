package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// TestCursor: in every round each op sends the chunk that its lag leaves.
func TestCursor(t *testing.T) {
	l := &Local{Ops: []LocalOp{{Kind: LocalSend, Peer: 1, Chunks: 3, Lag: 2}, {Kind: LocalSend, Peer: 1, Chunks: 4}, {Kind: LocalSend, Peer: 1, Chunks: 1, Lag: 9}}}
	l.wires()
	require.Equal(t, []Wire{{Peer: 1, Messages: 8, Ops: []int{0, 1, 2}}}, l.Sends)
	var got [][2]int64
	c := l.Walk(l.Sends[0])
	for op, chunk, ok := c.Next(); ok; op, chunk, ok = c.Next() {
		got = append(got, [2]int64{int64(op), chunk})
	}
	require.Equal(t, [][2]int64{{1, 0}, {1, 1}, {0, 0}, {1, 2}, {0, 1}, {1, 3}, {0, 2}, {2, 0}}, got)
}

// TestValidateFindsWhatBlocks breaks sound programs.
func TestValidateFindsWhatBlocks(t *testing.T) {
	program := func(cfg Config, way Algorithm) *Program {
		cfg.OneRail = -1
		p, err := New(cfg, Request{Op: AllSum, DType: distributed.Float32, Bytes: 100000, Force: way})
		require.NoError(t, err)
		require.NoError(t, p.Programs[0].validate())
		return p.Programs[0]
	}
	find := func(p *Program, kind Kind, held bool) int {
		for i := range p.Ops {
			if o := &p.Ops[i]; o.Kind == kind && (o.Write.Space == Slot) == held {
				return i
			}
		}
		return -1
	}
	chain := Config{Topology: Ring(3, 1)}

	p := program(chain, Chain)
	back := find(p, Move, false)
	first := &p.Ops[0]
	first.ReadAfter = append(first.ReadAfter, Dep{Op: len(p.Ops) - 1})
	require.ErrorContains(t, p.validate(), "which comes after it")

	p = program(chain, Chain)
	p.Ops[back].Lag = 0 // the result goes back before there is one
	require.ErrorContains(t, p.validate(), "which comes after it")

	p = program(chain, Chain)
	p.Ops[back].ReadAfter[0].Op = 0 // of other ranks
	require.ErrorContains(t, p.validate(), "waits for op 0 between 0 and 1")

	p = program(chain, Chain)
	p.Ops[back].Elems--
	require.ErrorContains(t, p.validate(), "elements waits for op")

	p = program(Config{Topology: Mesh(3, 1)}, OneShot)
	held := p.Ops[0]
	held.Write = Ref{Space: Dst}
	p.Ops = append([]Op{p.Ops[0], held}, p.Ops[1:]...) // another message between a held one and its release
	for i := range p.Ops {
		o := &p.Ops[i]
		for k := range o.WriteAfter {
			if o.WriteAfter[k].Op > 0 {
				o.WriteAfter[k].Op++
			}
		}
		for k := range o.Inputs {
			if o.Inputs[k].Recv > 0 {
				o.Inputs[k].Recv++
			}
		}
	}
	require.ErrorContains(t, p.validate(), "on the same wire")

	p = program(Config{Topology: Mesh(3, 1)}, OneShot)
	p.Ops[find(p, Reduce, false)].Lag++
	require.ErrorContains(t, p.validate(), "of another round")
}
