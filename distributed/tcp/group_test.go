package tcp

import (
	"testing"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/internal/testenv"
)

// small connects groups with small chunks, so that small messages have many.
func small(t *testing.T, s grouptest.Setup) []*distributed.Group {
	o := Options{Chunk: grouptest.Chunk, Threshold: 5 * grouptest.Chunk}
	if s.Scatter {
		o.Threshold = 1
	}
	if s.Whole {
		o.Threshold = -1
	}
	m := newMesh(t, s.Size, o, func(l *distributed.Link) { l.OpTimeout = s.OpTimeout })
	return m.groups
}

// TestContract runs the suite of all transports.
func TestContract(t *testing.T) { grouptest.Run(t, grouptest.Here(small)) }

// TestSplit runs the suite of splits.
func TestSplit(t *testing.T) { grouptest.Splits(t, grouptest.Here(small)) }

// TestContractOnChildren runs the suite of all transports on groups that were
// split off.
func TestContractOnChildren(t *testing.T) {
	testenv.Need(t, testenv.Full, "the contract on children of a split")
	grouptest.Run(t, grouptest.OnChildren(grouptest.Here(small)))
}
