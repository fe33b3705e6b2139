//go:build unix

package cluster

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFullTableOfFiles: strangers hold all files that the process may open when
// a rank joins. The group survives that and forms.
func TestFullTableOfFiles(t *testing.T) {
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	spare, err := os.Open(os.DevNull)
	require.NoError(t, err)
	low := was
	low.Cur = 8*24 + 16 // the leader leaves an eighth to strangers
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) })

	r := newRig(t, 2, []byte("a key of the cluster"))
	r.strangers(20)
	// Connections that are not accepted yet have no file that could be freed.
	require.Eventually(t, func() bool { return r.leader.strangers.Len() == 20 }, limit, time.Millisecond)
	var held []*os.File
	defer func() {
		for _, f := range held {
			_ = f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			require.ErrorIs(t, err, syscall.EMFILE)
			break
		}
		held = append(held, f)
	}
	require.NoError(t, spare.Close()) // for the socket of the rank that dials
	r.follow(1, nil)
	require.NoError(t, r.leader.Wait(soon(t)))
	require.NoError(t, r.do(r.running(0), "work"))
}
