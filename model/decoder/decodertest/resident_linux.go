package decodertest

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// faultAround is what Linux maps around a touched page if the file's pages are in memory:
// an aligned window of 64 KiB, and the whole of each folio that overlaps it.
const faultAround = 64 << 10

// inSinglePages copies a file with writes of one page, so that the page cache holds it in
// single-page folios and the mapped pages show which were touched.
func inSinglePages(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.Create(path + ".pages")
	require.NoError(t, err)
	for chunk := range slices.Chunk(data, os.Getpagesize()) {
		_, err := f.Write(chunk)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	return f.Name()
}

// resident counts the pages of mem that this process has touched, and all its pages. It
// reads the page table, because other mappings of the file must not count.
func resident(t *testing.T, mem []byte) (touched, all int) {
	t.Helper()
	table, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	defer table.Close()
	page := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	first, end := (begin+page-1)/page, (begin+uintptr(len(mem)))/page
	entries := make([]byte, 8*(end-first))
	_, err = table.ReadAt(entries, int64(8*first))
	require.NoError(t, err)
	for i := 0; i < len(entries); i += 8 {
		if binary.LittleEndian.Uint64(entries[i:])>>63 == 1 { // present
			touched++
		}
	}
	return touched, len(entries) / 8
}

// afterSteps returns the files of two ranks, each a mapping of its own, after a prompt of
// n tokens.
func (a Architecture) afterSteps(t *testing.T, path string, how parallel.Share, reduce parallel.Reduce, vocab, n int) []*gguf.File {
	all, files := make(Members, 2), make([]*gguf.File, 2)
	for r := range all {
		files[r] = openPath(t, path) // with no page touched yet
		all[r] = a.OpenOn(t, files[r], false, decoder.OpenOptions{MaxTokens: n, Reduce: reduce})
	}
	all.Join(t, how, Ones(2))
	all.Play(t, prompt(vocab, n))
	return files
}

// prompt is a step of n tokens.
func prompt(vocab, n int) []model.Step {
	ids := RandomIDs(rand.New(rand.NewPCG(41, 42)), vocab, n)
	return []model.Step{{Entries: []model.Entry{{Seq: 1, Tokens: ids, Want: model.WantLast}}}}
}

// requireTouched checks that a rank touched its own part of a tensor and, of the other's,
// no pages except those adjacent to its own.
func requireTouched(t *testing.T, rank int, name string, own, other []byte) {
	t.Helper()
	touched, pages := resident(t, own)
	require.Equal(t, pages, touched, "rank %d, %s: its own", rank, name)
	touched, pages = resident(t, other[faultAround:len(other)-faultAround])
	require.Greater(t, pages, 50, "%s: enough to measure", name)
	require.Zero(t, touched, "rank %d, %s: pages of the other's %d", rank, name, pages)
}

// RankTouchesItsRows checks that with everything divided each of two ranks touches its
// half of the rows of the named tensors of a model, and no pages of the other's except
// those adjacent to its own.
func (a Architecture) RankTouchesItsRows(t *testing.T, c synthetic.Config, names ...string) {
	path := inSinglePages(t, Write(t, c))
	for r, f := range a.afterSteps(t, path, parallel.ShareAll, parallel.Sum, c.Vocab, 100) {
		for _, name := range names {
			tensor, ok := f.Tensor(name)
			require.True(t, ok)
			half := len(tensor.Data) / 2
			requireTouched(t, r, name, tensor.Data[r*half:(r+1)*half], tensor.Data[(1-r)*half:(2-r)*half])
		}
	}
}

// RankTouchesItsExperts checks that in the mapped file of a model a rank touches
// all of the experts it owns, and of the others no pages except those adjacent to its
// own.
func (a Architecture) RankTouchesItsExperts(t *testing.T, c synthetic.Config) {
	path := inSinglePages(t, Write(t, c))
	ranges, err := parallel.Divide(c.Experts, Ones(2))
	require.NoError(t, err)
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		for r, f := range a.afterSteps(t, path, parallel.ShareExperts, reduce, c.Vocab, 200) {
			stacks := 0
			for _, tensor := range f.Tensors() {
				if !strings.Contains(tensor.Name, "_exps") {
					continue
				}
				stacks++
				size := len(tensor.Data) / c.Experts
				of := func(r parallel.Range) []byte { return tensor.Data[r.Start*size : r.End*size] }
				requireTouched(t, r, tensor.Name, of(ranges[r]), of(ranges[1-r]))
			}
			require.Equal(t, 3*(c.Layers-c.Latent.Dense), stacks)
		}
	}

	// Alone, a rank touches all pages, which shows that the measurement works.
	f := openPath(t, path)
	a.PlayAlone(t, f, decoder.OpenOptions{MaxTokens: 200}, prompt(c.Vocab, 200))
	tensor, ok := f.Tensor("blk.1.ffn_up_exps.weight")
	require.True(t, ok)
	touched, pages := resident(t, tensor.Data)
	require.Equal(t, pages, touched)
}
