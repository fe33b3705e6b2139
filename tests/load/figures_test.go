//go:build linux

package load

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"ringmaster/internal/testenv"
)

var (
	figures = flag.String("figures", "", "the model of TestConstraintFigures and TestDiskFigures, which print times and judge none")
	prompt  = flag.Int("figures-prompt", 4096, "tokens of the prompt of TestDiskFigures")
	rounds  = flag.Int("figures-rounds", 3, "how often each time is taken, in turns")
)

// firstToken sends a request for a streamed answer and tells when its first token came and
// when the last line.
func (s *server) firstToken(t *testing.T, body map[string]any) (first, whole time.Duration) {
	body["stream"], body["temperature"] = true, 0
	text := testenv.JSON(t, body)
	began := time.Now()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/v1/completions", bytes.NewReader(text))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		require.NotContains(t, lines.Text(), `"error"`)
		if first == 0 && strings.HasPrefix(lines.Text(), "data: {") {
			first = time.Since(began)
		}
	}
	require.NoError(t, lines.Err())
	return first, time.Since(began)
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// TestConstraintFigures prints what a token of a constrained answer takes beside one of any
// other, by the real program, in turns:
//
//	go test ./tests/load -run ConstraintFigures -v -args -figures small256.gguf
func TestConstraintFigures(t *testing.T) {
	if *figures == "" {
		t.Skip("NOT CHECKED: figures are printed with -figures MODEL")
	}
	s := start(t, testenv.Program(t), "--model", *figures, "--ctx", "4096")
	const tokens = 160
	forms := []map[string]any{
		{}, {"guided_regex": `(.|\n)*`}, {"guided_json": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}, "minItems": 1000}},
		{"guided_json": map[string]any{"type": "array", "items": map[string]any{"type": "string", "minLength": 1000}, "minItems": 1000}},
	}
	names := []string{"any", "regex of any text", "JSON: array of integers", "JSON: array of strings"}
	took := make([][]time.Duration, len(forms))
	for round := range *rounds + 1 {
		for i, form := range forms {
			body := map[string]any{"prompt": []int{5, 6, 7, 8, 9}, "max_tokens": tokens, "min_tokens": tokens}
			for name, value := range form {
				body[name] = value
			}
			first, whole := s.firstToken(t, body)
			if round > 0 { // the first makes grammars and masks
				took[i] = append(took[i], (whole-first)/(tokens-1))
			}
		}
	}
	plain := median(took[0])
	for i, name := range names {
		m := median(took[i])
		t.Logf("%-24s %.3f ms a token (%.3f)", name, m.Seconds()*1e3, m.Seconds()/plain.Seconds())
	}
}

// evict has the system forget what it has in memory of the files of a directory, so that
// they are read from the disk.
func evict(t *testing.T, dir string) {
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil { // what is dirty stays
			return err
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
		require.Zero(t, resident(t, f), "pages of %s are still in memory", path)
		return nil
	}))
	require.Positive(t, files)
}

// resident is how many pages of a file are in memory.
func resident(t *testing.T, f *os.File) (pages int) {
	info, err := f.Stat()
	require.NoError(t, err)
	if info.Size() == 0 {
		return 0
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(data)) }()
	states := make([]byte, (len(data)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(unsafe.Pointer(&states[0])))
	require.Zero(t, errno)
	for _, s := range states {
		pages += int(s & 1)
	}
	return pages
}

// TestDiskFigures prints how long a prompt takes to its first token after a restart of the
// real program, in turns: with the prefix cache on disk, its files read from the disk or
// in the system's memory, and without it:
//
//	go test ./tests/load -run DiskFigures -v -args -figures small256.gguf
func TestDiskFigures(t *testing.T) {
	if *figures == "" {
		t.Skip("NOT CHECKED: figures are printed with -figures MODEL")
	}
	program := testenv.Program(t)
	dir := filepath.Join(t.TempDir(), "cache")
	ids := make([]int, *prompt+10**rounds)
	for i := range ids {
		ids[i] = 5 + (i*7919)%241
	}
	life := func(disk bool, n int) time.Duration {
		args := []string{"--model", *figures, "--ctx", fmt.Sprint(*prompt + 1024)}
		if disk {
			args = append(args, "--cache-dir", dir)
		}
		s := start(t, program, args...)
		first, _ := s.firstToken(t, map[string]any{"prompt": ids[:n], "max_tokens": 2})
		if disk {
			t.Logf("  hits on disk: %v, of %v tokens", s.metric(t, "ringmaster_disk_cache_hits_total"), s.metric(t, "ringmaster_disk_cache_hit_tokens_total"))
		}
		require.NoError(t, s.Signal(syscall.SIGTERM))
		ctx := testenv.Within(t, patience)
		_, err := s.Wait(ctx)
		require.NoError(t, err)
		return first
	}
	life(true, *prompt)
	var with, cold, without []time.Duration
	for i := range *rounds {
		with = append(with, life(true, *prompt+10*i+5))
		evict(t, dir)
		cold = append(cold, life(true, *prompt+10*i+10))
		without = append(without, life(false, *prompt+10*i+10))
	}
	t.Logf("%d tokens, first token after a restart: with --cache-dir %v, with its files on the disk only %v, without %v", *prompt, median(with), median(cold), median(without))
}
