package pull

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/pull/partial"
	"ringmaster/internal/testenv"
)

// A wrong byte is found, the file does not get its name, and none of it is kept.
func TestWrongHash(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 300_000}), t.TempDir()
	h.serve(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		wrong := append([]byte{}, content...)
		wrong[200_000] ^= 1
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(wrong)))
		return true
	})
	_, err := pulled(t, h.quick(dir), "hf:owner/repo")
	require.ErrorContains(t, err, "expected "+sum(h.files["m.gguf"]))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	h.serve(nil)
	h.whole(h.quick(dir), "hf:owner/repo", "m.gguf")
}

// TestLiesAboutTheSize: a size that no disk holds is refused before memory is taken for
// it and before a file is made, wherever the number comes from.
func TestLiesAboutTheSize(t *testing.T) {
	for name, size := range map[string]int64{"10^17": 100_000_000_000_000_000, "10^15": 1_000_000_000_000_000, "60 TB": 60_000_000_000_000, "11 TB": 11_000_000_000_000} {
		for _, ranges := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", ranges ", ranges), func(t *testing.T) {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if ranges {
						w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-3/%d", size))
						w.WriteHeader(http.StatusPartialContent)
					} else {
						w.Header().Set("Content-Length", fmt.Sprint(size))
					}
					_, _ = w.Write(magic)
				}))
				defer server.Close()
				dir := t.TempDir()
				p, err := newPuller(Options{Dir: dir, Report: &notes{t: t}})
				require.NoError(t, err)
				p.free = func(string) (uint64, error) { return 10e12, nil }
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err = p.pull(t.Context(), server.URL+"/m.gguf")
				runtime.ReadMemStats(&after)
				require.ErrorIs(t, err, ErrInput)
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Empty(t, left)
			})
		}
	}
}

// TestAppearsMeanwhile: a file that gets the name during the fetch is not replaced.
func TestAppearsMeanwhile(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 300_000}), t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	h.serve(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.Header.Get("Range") != "bytes=0-3" {
			if err := os.WriteFile(path, []byte("somebody's work"), 0o600); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	_, err := pulled(t, h.quick(dir), "hf:owner/repo")
	require.ErrorIs(t, err, partial.ErrExists)
	got := testenv.ReadFile(t, path)
	require.Equal(t, "somebody's work", string(got))
	h.serve(nil)
	require.NoError(t, os.Remove(path))
	h.whole(h.quick(dir), "hf:owner/repo", "m.gguf") // the bytes were kept
}

// TestLies: contradictory answers of a server are found in bounded time.
func TestLies(t *testing.T) {
	serve := func(header map[string]string, status, n int) func(http.ResponseWriter, *http.Request, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, content []byte) bool {
			if r.Header.Get("Range") == "bytes=0-3" && status == http.StatusPartialContent && header["Content-Range"] != "bytes 0-3/5" {
				return false
			}
			for k, v := range header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			_, err := w.Write(content[:n])
			return err == nil || true
		}
	}
	for name, c := range map[string]struct {
		data    func(http.ResponseWriter, *http.Request, []byte) bool
		listing func(string, map[string]any)
		want    string
	}{
		"size of the range":   {serve(map[string]string{"Content-Range": "bytes 0-3/5"}, 206, 4), nil, "the server has 5 bytes of m.gguf, and the hub says 300000"},
		"size of the listing": {nil, func(_ string, e map[string]any) { e["lfs"].(map[string]any)["size"] = 7 }, "the server has 300000 bytes"},
		"hash of the listing": {nil, func(_ string, e map[string]any) { e["lfs"].(map[string]any)["oid"] = strings.Repeat("a", 64) }, "and serves it with"},
		"another range":       {serve(map[string]string{"Content-Range": "bytes 5-9/300000"}, 206, 5), nil, "were requested"},
		"no range":            {serve(nil, 206, 5), nil, "without saying which"},
		"a longer range":      {serve(map[string]string{"Content-Range": "bytes 0-299999/300000"}, 206, 300_000), nil, "were requested"},
		"nothing there":       {nil, func(_ string, e map[string]any) { e["lfs"].(map[string]any)["size"] = 0 }, "0 bytes"},
		"ranges only at first": {func(w http.ResponseWriter, r *http.Request, content []byte) bool {
			if r.Header.Get("Range") == "bytes=0-3" {
				return false
			}
			_, err := w.Write(content)
			return err == nil || true
		}, nil, "does not serve the requested range"},
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := newHub(t, map[string]int{"m.gguf": 300_000}), t.TempDir()
			h.listing = c.listing
			h.serve(c.data)
			_, err := pulled(t, h.quick(dir), "hf:owner/repo")
			require.ErrorContains(t, err, c.want)
			_, err = os.Stat(filepath.Join(dir, "m.gguf"))
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// A slow body that makes progress is not ended.
func TestASlowServer(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 800_000}), t.TempDir()
	h.serve(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		if r.Header.Get("Range") == "bytes=0-3" {
			return false
		}
		first, last := begin(w, r, content)
		pace := time.NewTicker(40 * time.Millisecond)
		defer pace.Stop()
		for at := first; at <= last; at += 20_000 {
			if _, err := w.Write(content[at:min(at+20_000, last+1)]); err != nil {
				return true
			}
			w.(http.Flusher).Flush()
			<-pace.C
		}
		return true
	})
	p := h.quick(dir)
	p.chunk, p.stall, p.attempts = 1<<20, time.Second, 1 // the whole takes 1.6 s
	h.whole(p, "hf:owner/repo", "m.gguf")
}

// A file without a hash that changes during the fetch would be a mixture.
func TestAFileThatChanges(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 400_000}), t.TempDir()
	var n atomic.Int64
	h.serve(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n.Add(1)/3))
		return false
	})
	_, err := pulled(t, h.quick(dir), h.store.URL+"/m.gguf")
	require.ErrorContains(t, err, "m.gguf has changed on")
}

// The token goes only to pages of the list of files on the same host.
func TestPagesOfAnotherHost(t *testing.T) {
	for link, want := range map[string]string{
		`</api/next?cursor=2>; rel="next"`:         "https://hub/api/next?cursor=2",
		`<https://hub/next>; rel="next"`:           "https://hub/next",
		`<https://hub/first>; rel="first"`:         "",
		`<https://evil.example/next>; rel="next"`:  "not on hub",
		`<http://hub/next>; rel="next"`:            "not on hub",
		`<https://hub.evil.example/x>; rel="next"`: "not on hub",
	} {
		next, err := (&puller{}).nextPage("https://hub/api/models/a/b/tree/c", http.Header{"Link": {link}})
		if strings.HasPrefix(want, "not") {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, next)
	}
}

// A file that is not a model is refused before anything is fetched.
func TestAPageIsNoModel(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 1000}), t.TempDir()
	h.files["m.gguf"] = []byte("<!DOCTYPE html><html>log in</html>")
	_, err := pulled(t, h.quick(dir), h.store.URL+"/m.gguf")
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, `begins with "<!DO"): is the address that of a page?`)
}

func TestRedirects(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 1000}), t.TempDir()
	h.serve(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		http.Redirect(w, r, r.URL.Path, http.StatusFound)
		return true
	})
	_, err := pulled(t, h.quick(dir), h.store.URL+"/m.gguf")
	require.ErrorContains(t, err, "redirects more than 6 times")

	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, "GGUF")
		require.NoError(t, err)
	}))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secure.Close()
	p := h.quick(dir)
	p.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	_, err = pulled(t, p, secure.URL+"/m.gguf")
	require.ErrorContains(t, err, "which is not encrypted")
}

// TestStatuses: each status has its error and cure, and only some are tried again.
func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status int
		after  string // Retry-After
		tries  int
		input  bool
		want   string
	}{
		{401, "", 1, true, "the token in HF_TOKEN may not read it"},
		{403, "", 1, true, "licence is accepted"},
		{404, "", 1, true, "check the name"},
		{418, "", 1, false, "418"},
		{429, "", 4, false, "429"},
		{429, "86400", 1, false, "asks to wait for 86400 s"},
		{500, "", 4, false, "500"},
		{503, "", 4, false, "503"},
	} {
		h, dir := newHub(t, map[string]int{"m.gguf": 1000}), t.TempDir()
		var n atomic.Int64
		h.serve(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			n.Add(1)
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
			return true
		})
		_, err := pulled(t, h.quick(dir), "hf:owner/repo")
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.input, errors.Is(err, ErrInput), "%v", err)
		require.EqualValues(t, c.tries, n.Load(), "status %d", c.status)
		require.NotContains(t, err.Error(), "signature")
	}
}

// A Retry-After that is not too long is obeyed.
func TestRetryAfter(t *testing.T) {
	h, dir := newHub(t, map[string]int{"m.gguf": 1000}), t.TempDir()
	var first atomic.Bool
	h.serve(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		if first.Swap(true) {
			return false
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	p := h.quick(dir)
	begun := time.Now()
	_, err := pulled(t, p, "hf:owner/repo")
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begun), time.Second)
	require.Contains(t, p.Report.(*notes).said(), "again in 1s")
}
