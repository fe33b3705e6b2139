package agents

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// With -record the agents' tests write what the agents send to testdata.
var record = flag.Bool("record", false, "write the requests of the agents to testdata")

// sent is a request.
type sent struct {
	Path string          `json:"path"`
	Body json.RawMessage `json:"body"`
}

// What differs from run to run or from host to host, and its place-holder.
var (
	folders = regexp.MustCompile(regexp.QuoteMeta(filepath.Clean(os.TempDir())) + `/[^/\s"]+/[0-9]{3}`)
	uuids   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	hexes   = regexp.MustCompile(`\b[0-9a-f]{16,}\b`)
	callIDs = regexp.MustCompile(`\b(?:call|toolu)_[0-9a-f]{24}\b`)
	literal = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

// longest is the most bytes that are kept of a text of the agent's own.
const longest = 80

// scrub is a body as it is kept: in the same order, without names of this host, and
// with its long texts replaced by their lengths. ids are the calls so far.
func scrub(body []byte, ids *[]string) json.RawMessage {
	out := literal.ReplaceAllFunc(body, func(quoted []byte) []byte {
		var s string
		if json.Unmarshal(quoted, &s) != nil {
			return quoted
		}
		s = folders.ReplaceAllString(s, "/folder")
		s = callIDs.ReplaceAllStringFunc(s, func(id string) string {
			for i, known := range *ids {
				if known == id {
					return fmt.Sprintf("CALL-%d", i)
				}
			}
			*ids = append(*ids, id)
			return fmt.Sprintf("CALL-%d", len(*ids)-1)
		})
		s = uuids.ReplaceAllString(s, "00000000-0000-4000-8000-000000000000")
		s = hexes.ReplaceAllStringFunc(s, func(x string) string { return strings.Repeat("0", len(x)) })
		if first, _, _ := strings.Cut(content, ","); len(s) > longest && !strings.Contains(s, request) && !strings.Contains(s, first) {
			s = fmt.Sprintf("(%d bytes)", len(s))
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(s) // a string is always JSON
		return bytes.TrimSpace(b.Bytes())
	})
	return out
}

// record writes the requests so far to a file of testdata, with -record.
func (s *server) record(t *testing.T, name string) {
	if !*record {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []sent
	var ids []string
	for _, r := range s.sent {
		if len(r.Body) > 0 {
			list = append(list, sent{r.Path, scrub(r.Body, &ids)})
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	require.NoError(t, e.Encode(list))
	require.NoError(t, os.WriteFile(filepath.Join("testdata", name), b.Bytes(), 0o644))
}

// What the agents sent, sent again: every request is taken, the tools and their
// results arrive, and the second request of a conversation finds the first one in
// the prefix cache.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data := testenv.ReadFile(t, file)
			list := testenv.FromJSON[[]sent](t, data)
			p := newPlay()
			s := start(t, p)
			var ids []string
			prompt := 0
			for _, r := range list {
				for i, id := range ids {
					r.Body = bytes.ReplaceAll(r.Body, fmt.Appendf(nil, "CALL-%d", i), []byte(id))
				}
				answer := s.post(t, r)
				for _, id := range callIDs.FindAllString(answer, -1) {
					if len(ids) == 0 || ids[len(ids)-1] != id {
						ids = append(ids, id)
					}
				}
				read, all := usage(t, answer)
				if _, results := p.counts(); results > 0 {
					require.Greater(t, read, prompt*9/10, "of %d tokens, after %d", all, prompt)
				}
				prompt = all
			}
			written, results := p.counts()
			require.Equal(t, []int{1, 1}, []int{written, results})
		})
	}
}

// post sends a request and gives the whole answer, a stream.
func (s *server) post(t *testing.T, r sent) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), "POST", s.url+r.Path, bytes.NewReader(r.Body))
	require.NoError(t, err)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer "+apiKey)
	resp, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", body)
	require.NotContains(t, string(body), `"error":{`)
	return string(body)
}

// usage is what the last usage of a stream says, in any dialect: the tokens of the
// prompt that the prefix cache had, and all.
func usage(t *testing.T, answer string) (cached, prompt int) {
	t.Helper()
	last := func(name string) (n int) {
		found := regexp.MustCompile(`"`+name+`":([0-9]+)`).FindAllStringSubmatch(answer, -1)
		if len(found) == 0 {
			return 0
		}
		n, err := strconv.Atoi(found[len(found)-1][1])
		require.NoError(t, err)
		return n
	}
	if n := last("cache_read_input_tokens"); n > 0 || strings.Contains(answer, "cache_read_input_tokens") {
		return n, n + last("input_tokens")
	}
	return last("cached_tokens"), last("prompt_tokens") + last("input_tokens")
}
