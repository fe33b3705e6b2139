package program

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProgramHash: the hash is that which sha256sum shows of the program's file, and part of
// what keeps results of other builds apart.
func TestProgramHash(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	file, err := os.ReadFile(self)
	require.NoError(t, err)
	sum := sha256.Sum256(file)
	hash, err := Hash()
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(sum[:]), hash)
	require.Contains(t, ID(), hash)
}
