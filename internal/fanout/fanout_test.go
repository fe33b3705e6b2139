package fanout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/testenv"
)

// limit bounds every wait of these tests; none comes near it.
const limit = 30 * time.Second

const testBlock = 1 << 10

// notes is a reporter.
type notes struct {
	mu          sync.Mutex
	phases      []string
	total, done map[string]int64
	lines       string
	seen        func(phase string, done int64)
}

func newNotes() *notes { return &notes{total: map[string]int64{}, done: map[string]int64{}} }

func (n *notes) Begin(phase string, total, done int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.phases = append(n.phases, phase)
	n.total[phase], n.done[phase] = total, done
}

func (n *notes) Add(b int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	phase := n.phases[len(n.phases)-1]
	n.done[phase] += b
	if n.seen != nil {
		n.seen(phase, n.done[phase])
	}
}
func (n *notes) End() {}
func (n *notes) Say(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines += line + "\n"
}

// bed is a group of ranks that copy files.
type bed struct {
	t       *testing.T
	size    int
	paths   []string
	dirs    []string // [size] directories of the followers
	reports []*notes // [size]
	content map[string][]byte
}

// newBed makes files of the given sizes for a group of some ranks.
func newBed(t *testing.T, ranks int, sizes ...int) *bed {
	t.Helper()
	b := &bed{t: t, size: ranks, content: map[string][]byte{}}
	source := t.TempDir()
	random := rand.NewChaCha8([32]byte{byte(ranks)})
	for i, n := range sizes {
		name := fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, len(sizes))
		content := make([]byte, n)
		_, err := random.Read(content)
		require.NoError(t, err)
		b.paths, b.content[name] = append(b.paths, filepath.Join(source, name)), content
		require.NoError(t, os.WriteFile(filepath.Join(source, name), content, 0o600))
	}
	for range ranks {
		b.dirs = append(b.dirs, t.TempDir())
	}
	return b
}

func (b *bed) config(rank int, coordinator string) cluster.Config {
	return cluster.Config{Hello: cluster.Hello{Rank: rank, Size: b.size, Build: "test"}, Coordinator: coordinator,
		Transport: tcp.New(tcp.Options{}), ConnectTimeout: limit, WorkTimeout: limit, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// run copies and returns the error of every rank.
func (b *bed) run() []error {
	b.t.Helper()
	return b.until(-1, 0)
}

// until is run, but one rank ends when it has fetched more than some bytes.
func (b *bed) until(quits int, bytes int64) []error {
	b.t.Helper()
	ctx := testenv.Within(b.t, limit)
	m, err := describe(b.paths, testBlock)
	require.NoError(b.t, err)
	b.reports = nil
	for range b.size {
		b.reports = append(b.reports, newNotes())
	}
	errs := make([]error, b.size)
	var all sync.WaitGroup
	errs[0] = lead(ctx, b.config(0, "127.0.0.1:0"), m, b.paths, b.reports[0], func(addr net.Addr) {
		for r := 1; r < b.size; r++ {
			mine := ctx
			if r == quits {
				var end context.CancelFunc
				mine, end = context.WithCancel(ctx)
				b.reports[r].seen = func(phase string, done int64) {
					if phase == "fetch" && done > bytes {
						end()
					}
				}
			}
			all.Go(func() {
				var paths []string
				if paths, errs[r] = Follow(mine, b.config(r, addr.String()), b.dirs[r], b.reports[r]); errs[r] == nil && len(paths) != len(b.paths) {
					errs[r] = fmt.Errorf("returns %q", paths)
				}
			})
		}
	})
	all.Wait()
	return errs
}

// requireCopied requires that a rank has all files and nothing else.
func (b *bed) requireCopied(rank int) {
	b.t.Helper()
	found, err := os.ReadDir(b.dirs[rank])
	require.NoError(b.t, err)
	require.Len(b.t, found, len(b.content))
	for name, want := range b.content {
		got := testenv.ReadFile(b.t, filepath.Join(b.dirs[rank], name))
		require.True(b.t, bytes.Equal(want, got), name)
	}
}

// copies runs a copy, after which every rank has all files.
func (b *bed) copies() {
	b.t.Helper()
	for r, err := range b.run() {
		require.NoError(b.t, err, "rank %d", r)
		if r > 0 {
			b.requireCopied(r)
		}
	}
}

func TestCopies(t *testing.T) {
	for ranks := 2; ranks <= 5; ranks++ {
		for _, sizes := range [][]int{{1}, {testBlock}, {testBlock + 1, 3}, {100*testBlock - 7, testBlock, 70*testBlock + 500}} {
			t.Run(fmt.Sprint(ranks, sizes), func(t *testing.T) {
				b := newBed(t, ranks, sizes...)
				b.copies()
				for r := 1; r < ranks; r++ {
					require.Equal(t, []string{"fetch", "check"}, b.reports[r].phases)
					require.Equal(t, b.reports[r].total, b.reports[r].done)
				}
				require.Equal(t, []string{"send", "check"}, b.reports[0].phases)
				require.Equal(t, b.reports[0].total, b.reports[0].done)
			})
		}
	}
}

// An interrupted copy resumes: a block is not sent again if all ranks have it, and a rank
// that has it does not write it again.
func TestResumes(t *testing.T) {
	b := newBed(t, 3, 200*testBlock, 50*testBlock+1)
	errs := b.until(2, 100*testBlock)
	require.Error(t, errs[0])
	require.ErrorContains(t, errs[0], "rank 2")
	require.ErrorContains(t, errs[1], "rank 2")

	b.copies()
	sent := b.reports[0].total["send"]
	require.Less(t, sent, int64(250*testBlock+1), "what was there is not sent again")
	require.Positive(t, sent)
	require.Positive(t, b.reports[1].total["fetch"]-sent)
}

// A rank that has a file is still a link of the chain; one that has another file of that
// name keeps it and fails.
func TestFilesThatAreThere(t *testing.T) {
	b := newBed(t, 3, 20*testBlock+3, 5)
	first := filepath.Base(b.paths[0])
	require.NoError(t, os.WriteFile(filepath.Join(b.dirs[1], first), b.content[first], 0o600))
	b.copies()
	b.copies() // nothing is left to do
	require.Zero(t, b.reports[0].total["send"])

	other := bytes.Clone(b.content[first])
	other[4711]++
	require.NoError(t, os.WriteFile(filepath.Join(b.dirs[1], first), other, 0o600))
	errs := b.run()
	require.ErrorContains(t, errs[0], "rank 1")
	require.ErrorContains(t, errs[0], "exists but differs (SHA-256")
	require.Error(t, errs[1])
	kept := testenv.ReadFile(t, filepath.Join(b.dirs[1], first))
	require.Equal(t, other, kept)

	require.NoError(t, os.WriteFile(filepath.Join(b.dirs[1], first), other[1:], 0o600))
	errs = b.run()
	require.ErrorContains(t, errs[0], "rank 1")
	require.ErrorContains(t, errs[1], "exists but differs")
}

// Damage on the disk between two runs is found by the SHA-256; the file is removed on
// that rank only, and the next run fetches it.
func TestDamage(t *testing.T) {
	b := newBed(t, 3, 300*testBlock)
	errs := b.until(2, 100*testBlock)
	require.Error(t, errs[0])
	part := filepath.Join(b.dirs[1], filepath.Base(b.paths[0])+".part")
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{b.content[filepath.Base(b.paths[0])][5] + 1}, 5)
	require.NoError(t, errors.Join(err, f.Close()))

	errs = b.run()
	require.ErrorContains(t, errs[0], "rank 1")
	require.ErrorContains(t, errs[0], "SHA-256")
	require.NoFileExists(t, part)
	b.copies()
}

// A block that is damaged on its way names the rank it came from.
func TestDamagedBlock(t *testing.T) {
	r := &rank{manifest: manifest{Block: testBlock}, files: []*file{{entry: entry{Name: "m.gguf"}}}}
	p := make([]byte, 10+checksumBytes)
	require.ErrorContains(t, r.store(block{0, 7, 10}, append([]byte("x"), p[1:]...), "rank 3 (c)"), "block 7 of m.gguf arrived damaged from rank 3 (c)")
}

// A rank without room, or that cannot write, is named on all ranks before anything is
// sent.
func TestARankThatCannot(t *testing.T) {
	b := newBed(t, 3, 1000)
	b.dirs[2] = filepath.Join(b.dirs[2], "file")
	require.NoError(t, os.WriteFile(b.dirs[2], nil, 0o600))
	errs := b.run()
	require.ErrorContains(t, errs[0], "rank 2")
	require.ErrorContains(t, errs[0], "choose another directory with --dir")
	require.ErrorContains(t, errs[2], "choose another directory")
	require.Error(t, errs[1])
}

func TestManifests(t *testing.T) {
	good := `{"files":[{"name":"a.gguf","size":5,"tag":"t"}],"block":8}`
	_, err := parseManifest([]byte(good))
	require.NoError(t, err)
	for text, want := range map[string]string{
		`{`:                                                         "list of files",
		`{"block":8}`:                                               "0 files",
		edit(good, `8}`, `0}`):                                      "blocks of 0 bytes",
		edit(good, `8}`, `1000000000}`):                             "blocks of",
		edit(good, "a.gguf", "../a.gguf"):                           "a file named",
		edit(good, "a.gguf", `..\\a.gguf`):                          "a file named",
		edit(good, "a.gguf", "a"):                                   "a file named",
		edit(good, "a.gguf", `a\u001b[2J.gguf`):                     "a file named",
		edit(good, "a.gguf", `a\u202efg.gguf`):                      "a file named",
		edit(good, "a.gguf", `a\n.gguf`):                            "a file named",
		edit(good, "a.gguf", ".gguf"):                               "a file named",
		edit(good, `"size":5`, `"size":0`):                          "0 bytes",
		edit(good, `"size":5`, `"size":-1`):                         "-1 bytes",
		edit(good, `"size":5`, `"size":99999999999999999`):          "bytes; expected",
		edit(good, `"size":5`, `"size":70368744177664`):             "blocks; at most",
		edit(good, `"tag":"t"`, `"tag":""`):                         "without a version",
		edit(good, `}]`, `},{"name":"a.gguf","size":5,"tag":"t"}]`): "two files",
	} {
		_, err := parseManifest([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

// TestRoomBeforeFiles: what rank 0 only announces makes no file on a rank without room.
func TestRoomBeforeFiles(t *testing.T) {
	m, err := parseManifest([]byte(`{"files":[{"name":"a.gguf","size":70368744177664,"tag":"t"}],"block":67108864}`))
	require.NoError(t, err)
	dir := t.TempDir()
	m.Files = slices.Repeat(m.Files, 64) // 4 EiB, more than any disk has
	for i := range m.Files {
		m.Files[i].Name = fmt.Sprintf("%d.gguf", i)
	}
	_, err = newTarget(m, dir, &notes{})
	require.ErrorContains(t, err, "are free")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	// A link that leads nowhere does not count as a missing file either.
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "a.gguf")))
	m.Files = []entry{{Name: "a.gguf", Size: 100, Tag: "t"}}
	_, err = newTarget(m, dir, &notes{})
	require.ErrorContains(t, err, "leads nowhere")
}

func edit(s, old, with string) string { return strings.Replace(s, old, with, 1) }

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"files":[{"name":"a.gguf","size":5,"tag":"t"}],"block":8}`))
	f.Fuzz(func(t *testing.T, settings []byte) {
		m, err := parseManifest(settings)
		if err != nil {
			return
		}
		for _, e := range m.Files {
			if filepath.Base(e.Name) != e.Name || e.Size < 1 || m.Block < 1 {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// Orders that no rank 0 of this build gives are refused.
func TestOrders(t *testing.T) {
	r := &rank{files: []*file{{}}}
	for _, o := range []order{{}, {Op: "send", To: 1}, {Op: "send", From: -1}, {Op: "hash", File: 1}, {Op: "finish", File: -1}, {Op: "finish"}} {
		require.Error(t, r.do(t.Context(), nil, o), "%+v", o)
	}
}
