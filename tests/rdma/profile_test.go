//go:build cgo && (linux || darwin)

package rdma

import (
	"strings"
	"testing"

	"ringmaster/distributed"
	"ringmaster/internal/testenv"
)

// TestProfiles runs the tests that depend on what a version of macOS grants
// (lengths, depths, queue pairs, GIDs, when receives may be posted), what a group does
// from its first sum to its children, and the common faults, as on the other versions of
// macOS. All other tests run as on 26.3, and with FAKEVERBS_PROFILE as on another one.
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

// notes are those of a group, but for the one that says how long its messages may
// be, which every group has on a version of macOS that takes short ones only.
func notes(g *distributed.Group) []string {
	var out []string
	for _, n := range g.Describe().Notes {
		if !strings.Contains(n, "do not come through") {
			out = append(out, n)
		}
	}
	return out
}
