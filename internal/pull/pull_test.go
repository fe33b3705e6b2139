package pull

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/pull/partial"
)

var threeParts = map[string]int{
	"Q4_K_M/M-Q4_K_M-00001-of-00003.gguf": 300_001, "Q4_K_M/M-Q4_K_M-00002-of-00003.gguf": 65_536,
	"Q4_K_M/M-Q4_K_M-00003-of-00003.gguf": 17, "M-Q8_0.gguf": 1000, "mmproj-F16.gguf": 50, "README.md": 40,
}

var threeNames = []string{"Q4_K_M/M-Q4_K_M-00001-of-00003.gguf", "Q4_K_M/M-Q4_K_M-00002-of-00003.gguf", "Q4_K_M/M-Q4_K_M-00003-of-00003.gguf"}

func TestPullASplitModel(t *testing.T) {
	h, dir := newHub(t, threeParts), filepath.Join(t.TempDir(), "new")
	h.whole(h.quick(dir), "hf:owner/repo:q4_k_m", threeNames...)
	require.Equal(t, "Bearer hf_secret", h.tokens["api"])
	require.Empty(t, h.tokens["store"], "the token stays with the hub")
	require.Equal(t, 5+1+1, len(h.ranges), "five ranges of the first part, one of each other: %v", h.ranges)

	// Existing files are not fetched again, and different ones are not overwritten.
	h.ranges = nil
	h.whole(h.quick(dir), "hf:owner/repo:Q4_K_M", threeNames...)
	require.Empty(t, h.ranges)
	second := filepath.Join(dir, filepath.Base(threeNames[1]))
	f, err := os.OpenFile(second, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1, 2, 3}, 1000)
	require.NoError(t, errors.Join(err, f.Close()))
	_, err = pulled(t, h.quick(dir), "hf:owner/repo:Q4_K_M")
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "already exists with SHA-256")
	require.NoError(t, os.Truncate(second, 5))
	_, err = pulled(t, h.quick(dir), "hf:owner/repo:Q4_K_M")
	require.ErrorContains(t, err, "exists with 5 bytes, expected 65536")
}

// cutting breaks the connection of each of the first requests for data after some
// bytes.
func cutting(requests, after int) func(http.ResponseWriter, *http.Request, []byte) bool {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		first, last := asked(r, content)
		if r.Header.Get("Range") == "bytes=0-3" || last-first < after || int(n.Add(1)) > requests {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
		begin(w, r, content)
		flush(w, content[first:first+after])
		panic(http.ErrAbortHandler)
	}
}

func asked(r *http.Request, content []byte) (first, last int) {
	last = len(content) - 1
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
	return first, last
}

// begin begins the answer with the range that was asked for.
func begin(w http.ResponseWriter, r *http.Request, content []byte) (first, last int) {
	first, last = asked(r, content)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(content)))
	w.WriteHeader(http.StatusPartialContent)
	return first, last
}

// flush sends some bytes at once.
func flush(w http.ResponseWriter, p []byte) {
	if _, err := w.Write(p); err == nil {
		w.(http.Flusher).Flush()
	}
}

// A broken connection loses what was on its way, not what has arrived.
func TestBrokenConnections(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 1 << 20}), t.TempDir()
	h.serve(cutting(40, 20<<10))
	p := h.quick(dir)
	p.chunk = 512 << 10 // so that a range breaks more often than the limit of failed attempts
	h.whole(p, "hf:owner/repo", "m.gguf")
	require.LessOrEqual(t, h.served, int64(1<<20+4), "no byte is sent twice")
	require.Contains(t, p.Report.(*notes).said(), "again in")
}

func TestAServerThatAlwaysBreaks(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 1 << 20}), t.TempDir()
	h.serve(cutting(1<<30, 100)) // less than what counts as progress
	_, err := pulled(t, h.quick(dir), "hf:owner/repo")
	require.ErrorContains(t, err, "no progress in 4 attempts")
	require.NotErrorIs(t, err, ErrInput)
	h.serve(nil)
	h.whole(h.quick(dir), "hf:owner/repo", "m.gguf")
}

// A stalled body is ended and its range requested again.
func TestStalls(t *testing.T) {
	for _, always := range []bool{false, true} {
		h, dir := newHub(t, map[string]int{"m.gguf": 300_000}), t.TempDir()
		ended := make(chan struct{})
		var n atomic.Int64
		h.serve(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
			if r.Header.Get("Range") == "bytes=0-3" || !always && n.Add(1) > 3 {
				return false
			}
			first, _ := begin(w, r, content)
			flush(w, content[first:first+10])
			select {
			case <-r.Context().Done():
			case <-ended:
			}
			return true
		})
		p := h.quick(dir)
		p.stall = 200 * time.Millisecond
		if always {
			_, err := pulled(t, p, "hf:owner/repo")
			close(ended)
			require.ErrorContains(t, err, "has sent almost nothing for 200ms")
			continue
		}
		h.whole(p, "hf:owner/repo", "m.gguf")
		close(ended)
		require.Contains(t, p.Report.(*notes).said(), "almost nothing")
	}
}

// A pull that was stopped is resumed: every byte is sent once.
func TestResume(t *testing.T) {
	h, dir := newHub(t, threeParts), t.TempDir()
	h.stopped(dir, "hf:owner/repo:Q4_K_M", 150_000)
	p := h.quick(dir)
	h.whole(p, "hf:owner/repo:Q4_K_M", threeNames...)
	fetch := p.Report.(*notes).phases[0]
	require.EqualValues(t, 365_554, fetch.total)
	require.Greater(t, fetch.had, int64(150_000), "what was there")
	require.Equal(t, fetch.total-fetch.had, fetch.added, "is not fetched again")
}

// A damaged, wrong or foreign state is not trusted.
func TestStatesThatDoNotFit(t *testing.T) {
	for name, spoil := range map[string]func(state, part string) error{
		"garbage":        func(state, _ string) error { return os.WriteFile(state, []byte("{"), 0o600) },
		"no state":       func(state, _ string) error { return os.Remove(state) },
		"truncated part": func(_, part string) error { return os.Truncate(part, 10) },
		"another hash": func(state, _ string) error {
			text, err := os.ReadFile(state)
			return errors.Join(err, os.WriteFile(state, []byte(strings.Replace(string(text), `"sha256":"`, `"sha256":"0`, 1)), 0o600))
		},
		"more than a range": func(state, _ string) error {
			text, err := os.ReadFile(state)
			have := regexp.MustCompile(`"have":\[\d+`)
			return errors.Join(err, os.WriteFile(state, have.ReplaceAll(text, []byte(`"have":[65537`)), 0o600))
		},
		"too many": func(state, _ string) error {
			text, err := os.ReadFile(state)
			return errors.Join(err, os.WriteFile(state, []byte(strings.Replace(string(text), `"have":[`, `"have":[9999999,`, 1)), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := newHub(t, map[string]int{"m.gguf": 300_000}), t.TempDir()
			h.stopped(dir, "hf:owner/repo", 100_000)
			part := filepath.Join(dir, "m.gguf.part")
			require.NoError(t, spoil(part+".json", part))
			p := h.quick(dir)
			h.whole(p, "hf:owner/repo", "m.gguf")
			require.Contains(t, p.Report.(*notes).said(), "fetching it from the beginning")
		})
	}
}

// A file of a server without ranges is read from the beginning, by one connection.
func TestNoRanges(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 300_000}), t.TempDir()
	var n atomic.Int64
	h.serve(func(w http.ResponseWriter, _ *http.Request, content []byte) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		if at := n.Add(1); at == 2 || at == 3 {
			flush(w, content[:200_000])
			panic(http.ErrAbortHandler)
		}
		_, err := w.Write(content)
		return err == nil || true
	})
	h.whole(h.quick(dir), "hf:owner/repo", "m.gguf")
	require.EqualValues(t, 4, n.Load(), "the first bytes, two broken attempts, a whole one")
}

func TestFreeSpaceIsCheckedFirst(t *testing.T) {
	h, dir := newHub(t, threeParts), t.TempDir()
	p := h.quick(dir)
	p.free = func(string) (uint64, error) { return 365_553, nil }
	_, err := pulled(t, p, "hf:owner/repo:Q4_K_M")
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "needs 357.0 KiB more, but only 357.0 KiB are free: free 1 B or choose")
	require.Empty(t, h.ranges)
	p = h.quick(dir)
	p.free = func(string) (uint64, error) { return 365_554, nil }
	_, err = pulled(t, p, "hf:owner/repo:Q4_K_M")
	require.NoError(t, err)
}

func TestTwoPullsOfOneFile(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 1000}), t.TempDir()
	other, _, err := partial.Open(filepath.Join(dir, "m.gguf"), partial.Identity{Size: 1000, Tag: "another", Chunk: 1000})
	require.NoError(t, err)
	_, err = pulled(t, h.quick(dir), "hf:owner/repo")
	require.ErrorContains(t, err, "another process is fetching")
	require.NoError(t, other.Close())
	_, err = pulled(t, h.quick(dir), "hf:owner/repo")
	require.NoError(t, err)
}

// An address without a hub: all parts by their names, with the ETag in place of a hash.
func TestPullAnAddress(t *testing.T) {
	h, dir := newHub(t, map[string]int{"d e/m-00001-of-00002.gguf": 200_000, "d e/m-00002-of-00002.gguf": 100}), t.TempDir()
	var tag atomic.Value
	tag.Store(`"one"`)
	h.serve(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("ETag", tag.Load().(string))
		return false
	})
	ref := h.store.URL + "/d%20e/m-00002-of-00002.gguf"
	h.stopped(dir, ref, 70_000)
	tag.Store(`"two"`) // the file has changed, so the existing data does not belong to it
	p := h.quick(dir)
	h.whole(p, ref, "d e/m-00001-of-00002.gguf", "d e/m-00002-of-00002.gguf")
	require.Contains(t, p.Report.(*notes).said(), "fetching it from the beginning")
	require.Contains(t, p.Report.(*notes).said(), "no checksum; SHA-256 is "+sum(h.files["d e/m-00001-of-00002.gguf"]))
	require.Empty(t, h.tokens["store"])
}
