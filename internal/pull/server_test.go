package pull

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// hub is a hub and its store, which is a separate server.
type hub struct {
	t       *testing.T
	api     *httptest.Server
	store   *httptest.Server
	files   map[string][]byte // by path in the repository
	listing func(path string, e map[string]any)
	// data serves a request to the store; nil or false: the default answer.
	data func(w http.ResponseWriter, r *http.Request, content []byte) bool

	mu     sync.Mutex
	ranges []string // requested from the store, other than a file's first bytes
	tokens map[string]string
	served int64
}

const commitID = "0123456789abcdef0123456789abcdef01234567"

func newHub(t *testing.T, sizes map[string]int) *hub {
	h := &hub{t: t, files: map[string][]byte{}, tokens: map[string]string{}}
	r := rand.New(rand.NewPCG(18, uint64(len(sizes))))
	for path, size := range sizes {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(r.IntN(256))
		}
		copy(content, magic)
		h.files[path] = content
	}
	h.api = httptest.NewServer(http.HandlerFunc(h.serveAPI))
	h.store = httptest.NewServer(http.HandlerFunc(h.serveStore))
	t.Cleanup(h.api.Close)
	t.Cleanup(h.store.Close)
	return h
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// serve sets data.
func (h *hub) serve(data func(w http.ResponseWriter, r *http.Request, content []byte) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = data
}

// serveAPI acts as the hub: commit, list of files in pages of two, redirects.
func (h *hub) serveAPI(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.tokens["api"] = r.Header.Get("Authorization")
	h.mu.Unlock()
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/api/models/owner/repo/revision/"):
		fmt.Fprintf(w, `{"sha": %q, "siblings": []}`, commitID)
	case path == "/api/models/owner/repo/tree/"+commitID:
		var all []map[string]any
		for _, path := range slices.Sorted(maps.Keys(h.files)) {
			content := h.files[path]
			e := map[string]any{"type": "file", "path": path, "size": len(content), "oid": "git",
				"lfs": map[string]any{"oid": sum(content), "size": len(content), "pointerSize": 134}}
			if h.listing != nil {
				h.listing(path, e)
			}
			all = append(all, e)
		}
		all = append(all, map[string]any{"type": "directory", "path": "dir", "size": 0})
		first := 0
		fmt.Sscan(r.URL.Query().Get("cursor"), &first)
		if first+2 < len(all) {
			w.Header().Set("Link", fmt.Sprintf(`<%s%s?recursive=true&cursor=%d>; rel="next"`, h.api.URL, path, first+2))
		}
		if err := json.NewEncoder(w).Encode(all[first:min(first+2, len(all))]); err != nil {
			h.t.Error(err)
		}
	case strings.HasPrefix(path, "/owner/repo/resolve/"+commitID+"/"):
		path = strings.TrimPrefix(path, "/owner/repo/resolve/"+commitID)
		if content, ok := h.files[path[1:]]; ok {
			w.Header().Set("X-Linked-Etag", `"`+sum(content)+`"`)
			w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
			http.Redirect(w, r, h.store.URL+(&url.URL{Path: path}).EscapedPath()+"?signature=secret", http.StatusFound)
			return
		}
		http.NotFound(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (h *hub) serveStore(w http.ResponseWriter, r *http.Request) {
	content := h.files[strings.TrimPrefix(r.URL.Path, "/")]
	asked := r.Header.Get("Range")
	h.mu.Lock()
	h.tokens["store"] += r.Header.Get("Authorization")
	if asked != "bytes=0-3" {
		h.ranges = append(h.ranges, asked)
	}
	data := h.data
	h.mu.Unlock()
	if content == nil {
		http.NotFound(w, r)
		return
	}
	counted := &counter{ResponseWriter: w, h: h}
	if data != nil && data(counted, r, content) {
		return
	}
	http.ServeContent(counted, r, "", time.Time{}, bytes.NewReader(content))
}

// counter counts what the store sends.
type counter struct {
	http.ResponseWriter
	h *hub
}

func (c *counter) Write(b []byte) (int, error) {
	c.h.mu.Lock()
	c.h.served += int64(len(b))
	c.h.mu.Unlock()
	return c.ResponseWriter.Write(b)
}

func (c *counter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// quick returns a puller from the hub with short limits.
func (h *hub) quick(dir string) *puller {
	p, err := newPuller(Options{Dir: dir, Endpoint: h.api.URL, Token: "hf_secret", Connections: 3, Report: &notes{t: h.t}})
	require.NoError(h.t, err)
	p.chunk, p.stall, p.attempts = 64<<10, 5*time.Second, 4
	p.firstPause, p.mostPause, p.saveEvery = time.Millisecond, 4*time.Millisecond, 10*time.Millisecond
	return p
}

// whole runs a pull, which leaves the wanted files in its directory and nothing else.
func (h *hub) whole(p *puller, ref string, wanted ...string) {
	h.t.Helper()
	paths, err := pulled(h.t, p, ref)
	require.NoError(h.t, err)
	require.Len(h.t, paths, len(wanted))
	for i, path := range wanted {
		require.Equal(h.t, filepath.Join(p.Dir, filepath.Base(path)), paths[i])
		got := testenv.ReadFile(h.t, paths[i])
		require.True(h.t, bytes.Equal(h.files[path], got), path)
	}
	left, err := os.ReadDir(p.Dir)
	require.NoError(h.t, err)
	require.Len(h.t, left, len(wanted), "nothing else is left in the directory")
}

// stopped runs a pull and cancels it after the given number of bytes.
func (h *hub) stopped(dir, ref string, bytes int64) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	p := h.quick(dir)
	p.Report.(*notes).seen = func(done int64) {
		if done > bytes {
			cancel()
		}
	}
	_, err := p.pull(ctx, ref)
	require.ErrorIs(h.t, err, context.Canceled)
}

// notes checks that the numbers of a report agree.
type notes struct {
	t      *testing.T
	mu     sync.Mutex
	phases []phase
	lines  []string
	seen   func(done int64) // after every Add
}

type phase struct{ total, had, added int64 }

func (n *notes) Begin(_ string, total, done int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.phases = append(n.phases, phase{total: total, had: done})
}

func (n *notes) Add(d int64) {
	n.mu.Lock()
	now := &n.phases[len(n.phases)-1]
	now.added += d
	done := now.had + now.added
	if done < 0 || done > now.total {
		n.t.Errorf("%d of %d bytes are reported", done, now.total)
	}
	n.mu.Unlock()
	if n.seen != nil {
		n.seen(done)
	}
}

func (n *notes) End() {}

func (n *notes) Say(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
	if strings.Contains(line, "hf_secret") || strings.Contains(line, "signature") {
		n.t.Errorf("a secret is reported: %s", line)
	}
}

func (n *notes) said() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

// pulled runs a pull with a deadline, because no fault may make it wait forever.
func pulled(t *testing.T, p *puller, ref string) ([]string, error) {
	t.Helper()
	ctx := testenv.Within(t, 30*time.Second)
	paths, err := p.pull(ctx, ref)
	require.NoError(t, ctx.Err(), "the pull ends by itself")
	return paths, err
}
