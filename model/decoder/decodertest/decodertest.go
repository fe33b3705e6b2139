// Package decodertest holds the tests that every architecture passes, whatever its layers
// are: the same bits for any chunks, threads, company and ranks, steps that leave no
// trace, snapshots, memory as planned, files with errors. An architecture describes
// itself by an Architecture and calls Alone and OnRanks, and the methods that need more:
//
//	func TestAlone(t *testing.T)   { architecture.Alone(t) }
//	func TestOnRanks(t *testing.T) { architecture.OnRanks(t) }
package decodertest

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
)

// Architecture is what is tested.
type Architecture struct {
	Name string // general.architecture
	// Small is a model with every kind of layer that runs in milliseconds, with a
	// vocabulary of 512 and embeddings in float16.
	Small func(t testing.TB) synthetic.Config
	// Growths is how often the caches of Small grow up to 10,000 positions in steps of
	// 512, without the first step.
	Growths int
	// NoBlock says that this program runs no block for multi-token prediction of the
	// architecture.
	NoBlock bool
	// Random draws a model of any shape and types of weights.
	Random func(t testing.TB, r *rand.Rand) synthetic.Config
}

// Write writes a model to a file of the test and returns its path.
func Write(t testing.TB, c synthetic.Config) string {
	path := filepath.Join(t.TempDir(), "model.gguf")
	_, err := c.WriteFile(path)
	require.NoError(t, err)
	return path
}

// InMemory is the file of a shape, read into memory. Its name is "test file".
func InMemory(t testing.TB, c synthetic.Config) *gguf.File {
	w, err := c.Writer()
	require.NoError(t, err)
	return gguftest.Open(t, "test file", w)
}

// OnDisk is the file of a shape, written to disk and mapped. It is closed with the test.
func OnDisk(t testing.TB, c synthetic.Config) *gguf.File { return openPath(t, Write(t, c)) }

func openPath(t testing.TB, path string) *gguf.File {
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// openFile loads a model; it is closed with the test.
func (a Architecture) openFile(t testing.TB, path string, threads int, o decoder.OpenOptions) decoder.Decoder {
	b, err := cpu.New(threads)
	require.NoError(t, err)
	return a.openWith(t, openPath(t, path), b, o)
}

// OpenOn loads a model on a single-threaded backend, deferred if lazy is set. It is
// closed with the test.
func (a Architecture) OpenOn(t testing.TB, f *gguf.File, lazy bool, o decoder.OpenOptions) decoder.Decoder {
	var b kernels.Backend
	b, err := cpu.New(1)
	require.NoError(t, err)
	if lazy {
		b = deferred.Wrap(b)
	}
	return a.openWith(t, f, b, o)
}

// openWith loads a model on a backend; both are closed with the test.
func (a Architecture) openWith(t testing.TB, f *gguf.File, b kernels.Backend, o decoder.OpenOptions) decoder.Decoder {
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	m, err := arch.Open(f, b, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// RandomIDs draws n tokens of a vocabulary.
func RandomIDs(r *rand.Rand, vocab, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(vocab))
	}
	return ids
}

// Feed runs ids from position pos in chunks drawn by next, commits each and
// returns all logits.
func Feed(t testing.TB, m model.Model, seq model.SeqID, pos int, ids []int32, next func() int) [][]float32 {
	var out [][]float32
	for at := 0; at < len(ids); {
		n := min(next(), len(ids)-at)
		s := model.Step{Entries: []model.Entry{{Seq: seq, Pos: pos + at, Tokens: ids[at : at+n], Want: model.WantAll}}}
		rows, err := m.Forward(context.Background(), s)
		require.NoError(t, err)
		require.Len(t, rows, n)
		out = appendRows(out, rows)
		m.Commit(s)
		at += n
	}
	return out
}

// appendRows appends copies of rows.
func appendRows(to, rows [][]float32) [][]float32 {
	for _, r := range rows {
		to = append(to, append([]float32(nil), r...))
	}
	return to
}

// Always is the length n for every chunk of Feed.
func Always(n int) func() int { return func() int { return n } }

// RequireSame fails unless all logits have the same bits.
func RequireSame(t testing.TB, want, got [][]float32, what string) {
	t.Helper()
	require.Equal(t, len(want), len(got), what)
	for i := range want {
		for j := range want[i] {
			if math.Float32bits(want[i][j]) != math.Float32bits(got[i][j]) {
				require.Failf(t, "logits differ", "%s: token %d, logit %d: %v and %v", what, i, j, want[i][j], got[i][j])
			}
		}
	}
}

// RequireFinite fails unless all logits are finite.
func RequireFinite(t testing.TB, rows [][]float32) {
	t.Helper()
	for i, row := range rows {
		for j, v := range row {
			require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0), "token %d, logit %d is %v", i, j, v)
		}
	}
}

// relative is the root mean square of got-want relative to want's.
func relative(want, got []float32) float64 {
	var diff, all float64
	for j, w := range want {
		d := float64(w - got[j])
		diff += d * d
		all += float64(w) * float64(w)
	}
	return math.Sqrt(diff / all)
}
