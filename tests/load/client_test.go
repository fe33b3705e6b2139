//go:build linux

package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/tests/cluster/harness"
)

// client sends requests to one server, each on a connection of its own.
type client struct {
	*harness.Client
	base string
	http *http.Client
}

func newClient(addr string) *client {
	requests := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	return &client{harness.NewClient(addr, nil), "http://" + addr, requests}
}

// metric is the value of a metric, named with its labels.
func (c *client) metric(t *testing.T, name string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	v, err := c.Metric(ctx, name)
	require.NoError(t, err)
	return v
}

// request is one of the load.
type request struct {
	prompt int // tokens
	max    int // of the answer; 0: none given
	n      int // answers, if more than one
	stream bool
	first  int           // first token, which decides what prefixes are shared
	chat   bool          // a message of that many words after a system prompt that all share
	leave  time.Duration // after which the client is gone, if not 0
	body   int           // bytes of a body that is too large, if not 0
}

// outcome is what became of a request.
type outcome struct {
	status int    // 0: the client has left
	code   string // of the error, also of an error event
	took   time.Duration
}

// complete sends a request and reads the whole answer.
func (c *client) complete(ctx context.Context, r request) outcome {
	if r.leave > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.leave)
		defer cancel()
	}
	ids := make([]int, r.prompt)
	for i := range ids {
		ids[i] = (r.first + i) % 200
	}
	path, body := "/v1/completions", map[string]any{"prompt": ids, "temperature": 0, "stream": r.stream}
	if r.chat {
		type message struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		}
		path = "/v1/chat/completions"
		delete(body, "prompt")
		body["messages"] = []message{{"system", strings.Repeat("You answer questions. ", 40)}, {"user", strings.Repeat(fmt.Sprint(r.first, " "), r.prompt)}}
	}
	if r.max > 0 {
		body["max_tokens"], body["ignore_eos"] = r.max, true
	}
	if r.n > 1 {
		body["n"] = r.n
	}
	if r.body > 0 {
		body["user"] = strings.Repeat("x", r.body)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return outcome{status: -1, code: err.Error()}
	}
	began := time.Now()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(text))
	if err != nil {
		return outcome{status: -1, code: err.Error()}
	}
	post.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(post)
	if err != nil {
		if ctx.Err() != nil {
			return outcome{}
		}
		return outcome{status: -1, code: err.Error()}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		if ctx.Err() != nil {
			return outcome{}
		}
		return outcome{status: -1, code: err.Error()}
	}
	out := outcome{status: resp.StatusCode, took: time.Since(began)}
	var failed struct {
		Error struct{ Code string }
	}
	for line := range strings.Lines(string(answer)) { // a JSON object, or the events of a stream
		line = strings.TrimPrefix(line, "data: ")
		if json.Unmarshal([]byte(line), &failed) == nil && failed.Error.Code != "" {
			out.code = failed.Error.Code
		}
	}
	return out
}

// tally counts outcomes.
type tally struct {
	mu       sync.Mutex
	counts   map[string]int // by status and code
	refusals []time.Duration
	wrong    []string // outcomes that are not documented
}

func (t *tally) add(r request, o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := strings.TrimSpace(fmt.Sprintf("%d %s", o.status, o.code))
	if o.status < 0 && r.body > 0 {
		// The server answers and closes without reading a body that is too
		// large, which a client that is still writing sees as a broken
		// connection.
		key = "body cut"
	}
	t.counts[key]++
	switch key {
	case "429 server_busy":
		t.refusals = append(t.refusals, o.took)
	case "0", "200", "body cut", "200 out_of_memory", "503 out_of_memory", "503 server_busy":
	case "413 request_too_large":
		if r.body == 0 {
			t.wrong = append(t.wrong, key)
		}
	default:
		t.wrong = append(t.wrong, key)
	}
}

// totals are the requests answered and refused.
func (t *tally) totals() (answered, refused int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts["200"], len(t.refusals)
}

// hammer sends random requests until ctx ends.
func (s *server) hammer(ctx context.Context, seed uint64, t *tally) {
	random := rand.New(rand.NewPCG(seed, 7))
	for ctx.Err() == nil {
		r := request{prompt: 1 + random.IntN(60), max: 1 + random.IntN(12), stream: random.IntN(2) == 0, first: random.IntN(6), chat: random.IntN(2) == 0}
		switch random.IntN(10) {
		case 0:
			r.prompt, r.chat = 300+random.IntN(1200), false
		case 1:
			r.max = 0
		case 2:
			r.n = 2 + random.IntN(3)
		case 3:
			r.leave = time.Duration(1+random.IntN(400)) * time.Millisecond
		case 4:
			if random.IntN(4) == 0 {
				r.body = 1 << 20
			}
		}
		out := s.complete(ctx, r)
		if ctx.Err() != nil {
			return
		}
		t.add(r, out)
		if out.status == http.StatusTooManyRequests {
			// A client that waits after a refusal, as Retry-After asks, if less long.
			select {
			case <-time.After(time.Duration(100+random.IntN(200)) * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}
