package diskcache

import (
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/snapshot"
)

// BenchmarkSnapshots measures how fast snapshots of 64 MiB are written, to the end of
// their sync, and read from files that are in memory; whoever restores them checks them.
// They lie in TMPDIR.
func BenchmarkSnapshots(b *testing.B) {
	const size = 64 << 20
	s, err := Open(filepath.Join(b.TempDir(), "cache"), Options{Budget: 2 << 30, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	s.Use("model", 8, 0)
	seed := uint64(0)
	write := func(b *testing.B) {
		seed++
		tokens := ids(seed, 300)
		rest := state(b, tokens, size)
		b.StartTimer()
		w := s.Save(Sequence{Tokens: tokens, Peak: len(tokens)})
		require.NotNil(b, w)
		for len(rest) > 0 {
			require.False(b, w.Ended())
			if !w.Ready() {
				runtime.Gosched() // another goroutine writes
				continue
			}
			k := min(len(rest), snapshot.MaxPiece)
			w.Put(rest[:k])
			rest = rest[k:]
		}
		w.Finish()
		s.wg.Wait()
		b.StopTimer()
	}
	b.Run("write", func(b *testing.B) {
		b.SetBytes(size)
		for range b.N {
			b.StopTimer()
			write(b)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(size)
		for range b.N {
			e, n := s.Find("", ids(seed, 300))
			require.Equal(b, 299, n)
			l := s.Load(e)
			for read := 0; ; {
				piece, ok, err := l.Next()
				if errors.Is(err, io.EOF) {
					require.Greater(b, read, size)
					break
				}
				require.NoError(b, err)
				if ok {
					read += len(piece)
				} else {
					runtime.Gosched()
				}
			}
			l.Close()
		}
	})
	require.NoError(b, s.Close(b.Context()))
}
