package tcp

import (
	"testing"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/internal/testenv"
)

// small connects groups with small chunks, so that even small messages span
// several.
func small(t *testing.T, s grouptest.Setup) []*distributed.Group {
	return smallWith(t, s, Options{Chunk: grouptest.Chunk, Threshold: 5 * grouptest.Chunk})
}

// encrypted is small over TLS.
func encrypted(t *testing.T, s grouptest.Setup) []*distributed.Group {
	return smallWith(t, s, Options{Chunk: grouptest.Chunk, Threshold: 5 * grouptest.Chunk, Encrypt: true})
}

func smallWith(t *testing.T, s grouptest.Setup, o Options) []*distributed.Group {
	if s.Scatter {
		o.Threshold = 1
	}
	if s.Whole {
		o.Threshold = -1
	}
	m := newMesh(t, s.Size, o, func(l *distributed.Link) { l.OpTimeout = s.OpTimeout })
	return m.groups
}

// upToFour leaves groups of more than four ranks to level l.
func upToFour(l testenv.Level, connect func(*testing.T, grouptest.Setup) []*distributed.Group) func(*testing.T, grouptest.Setup) []*distributed.Group {
	return func(t *testing.T, s grouptest.Setup) []*distributed.Group {
		if s.Size > 4 {
			testenv.Need(t, l, "the contract on more than four ranks")
		}
		return connect(t, s)
	}
}

// TestContract runs the test suite that all transports share.
func TestContract(t *testing.T) { grouptest.Run(t, grouptest.Here(upToFour(testenv.Full, small))) }

// TestSplit runs the shared test suite of Split.
func TestSplit(t *testing.T) { grouptest.Splits(t, grouptest.Here(upToFour(testenv.Full, small))) }

// TestContractOnChildren runs the shared test suite on groups that were split
// off.
func TestContractOnChildren(t *testing.T) {
	testenv.Need(t, testenv.Full, "the contract on children of a split")
	grouptest.Run(t, grouptest.OnChildren(grouptest.Here(upToFour(testenv.Exhaustive, small))))
}

// TestContractEncrypted runs the shared test suites over TLS.
func TestContractEncrypted(t *testing.T) {
	testenv.Need(t, testenv.Full, "the contract over TLS")
	grouptest.Run(t, grouptest.Here(upToFour(testenv.Exhaustive, encrypted)))
	grouptest.Splits(t, grouptest.Here(upToFour(testenv.Exhaustive, encrypted)))
}
