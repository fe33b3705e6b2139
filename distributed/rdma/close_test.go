package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/engine"
	"ringmaster/distributed/rdma/plan"
)

// An operation that begins when Close has begun, and before Close fails the
// group (what was sent may leave first), ends because of Close and of nothing
// else.
func TestOperationBesideClose(t *testing.T) {
	eng, err := engine.New(engine.Config{Plan: plan.Config{Topology: plan.Mesh(2, 1)}})
	require.NoError(t, err)
	defer eng.Free()
	g := &group{eng: eng, failed: make(chan struct{}), closed: true}
	g.op = operation{name: "recv", runs: true, peer: -1, to: -1}
	g.busy.Store(true)
	err = g.finish()
	require.ErrorIs(t, err, distributed.ErrClosed)
	require.NotErrorIs(t, err, distributed.ErrDesync)
	require.False(t, g.busy.Load(), "the group is free for Close")
	require.Nil(t, g.cause, "Close fails the group, when what was sent has left")
}
