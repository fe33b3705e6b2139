//go:build cgo && (linux || darwin)

package rdma

import (
	"strings"
	"testing"

	"ringmaster/distributed"
	"ringmaster/internal/testenv"
)

// TestProfiles repeats tests as on the other versions of macOS: those that depend on
// what a version grants (lengths, depths, queue pairs, GIDs, when receives may be
// posted), a group's life from its first sum to its children, and the common faults. All
// other tests run as on 26.3, and with FAKEVERBS_PROFILE as on another version.
func TestProfiles(t *testing.T) {
	testenv.Need(t, testenv.Full, "other versions of macOS")
	for _, profile := range []string{"26.2", "27.0"} {
		t.Run("macOS "+profile, func(t *testing.T) {
			t.Setenv("FAKEVERBS_PROFILE", profile)
			for name, test := range map[string]func(*testing.T){
				"first sum": TestFirstSum, "epochs": TestEpochs, "GIDs": TestGIDByFamily, "crossed rails": TestCrossedRails,
				"dead rail": TestDeadRail, "unreachable peer": TestUnreachablePeer, "port without address": TestPortWithoutAddress,
				"link lost while idle": TestLostLinkWhileIdle, "statuses": TestStatusesAreChecked, "children": TestChildrenOnRails,
				"children given back": TestChildrenAreGivenBack, "longest message": TestLongestMessage, "stated lengths": TestStatedLengths,
				"depth": TestDepth, "receive first": TestReceiveComesFirst, "sender ahead": TestSenderAhead,
				"memory registered once": TestMemoryIsRegisteredOnce, "child without resources": TestChildWithoutResources,
				"cable pulled in a sum": TestPulledInSum,
			} {
				t.Run(name, test)
			}
		})
	}
}

// notes returns a group's notes without the one about the longest message, because every
// group has that one on a version of macOS that carries only short messages.
func notes(g *distributed.Group) []string {
	var out []string
	for _, n := range g.Describe().Notes {
		if !strings.Contains(n, "do not arrive") {
			out = append(out, n)
		}
	}
	return out
}
