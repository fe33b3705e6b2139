package filelock

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// counter names the file in which the processes of TestLock count.
const counter = "FILELOCK_COUNTER"

func TestMain(m *testing.M) {
	if file := os.Getenv(counter); file != "" {
		if err := count(file); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// count adds 1 to the number in a file, many times. Without the lock numbers get
// lost, or are read while they are written.
func count(file string) error {
	for range 200 {
		release, err := Lock(context.Background(), filepath.Dir(file))
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		release()
	}
	return nil
}

// TestLock: processes, and goroutines in each, exclude each other.
func TestLock(t *testing.T) {
	file := testenv.WriteFile(t, filepath.Join(t.TempDir(), "count"), "0")
	var all sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		all.Go(func() {
			if i%2 == 0 {
				errs[i] = count(file)
				return
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), counter+"="+file)
			cmd.Stderr = os.Stderr
			errs[i] = cmd.Run()
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	text := testenv.ReadFile(t, file)
	require.Equal(t, strconv.Itoa(200*len(errs)), string(text))
}

// TestLockGivenUp: who stops waiting does not get the lock later either.
func TestLockGivenUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	release, err := Lock(t.Context(), file)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Lock(ctx, file)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, file)
	release()
	release, err = Lock(t.Context(), file)
	require.NoError(t, err)
	release()
}
