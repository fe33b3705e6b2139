package program

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestProgramHash: the hash is what sha256sum shows for the program's file, and part of
// the id that separates results of other builds.
func TestProgramHash(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	file := testenv.ReadFile(t, self)
	sum := sha256.Sum256(file)
	hash, err := Hash()
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(sum[:]), hash)
	require.Contains(t, ID(), hash)
}

// TestVersion: what is printed is true of the build: its commit, the version of its module,
// or that nothing is known.
func TestVersion(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	built := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	for want, info := range map[string]*debug.BuildInfo{
		"0123456789ab":  built("(devel)", debug.BuildSetting{Key: "vcs.revision", Value: commit}, debug.BuildSetting{Key: "vcs.modified", Value: "false"}),
		"0123456789ab+": built("v1.2.3", debug.BuildSetting{Key: "vcs.revision", Value: commit}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
		"v1.2.3":        built("v1.2.3"),
	} {
		require.Equal(t, want, versionOf(info))
	}
	for _, info := range []*debug.BuildInfo{nil, built(""), built("(devel)")} {
		require.Equal(t, "unknown (built without version control)", versionOf(info))
	}
}
