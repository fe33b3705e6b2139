//go:build linux

package campaign

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// What a request of at most 1 MiB may take, beside the tokens that the model computes.
// Schemas and grammars have tests of their own.
const (
	mostBody   = 1 << 20
	mostCPU    = 2 * time.Second
	mostMemory = 256 << 20
	// mostAfter is the work after the client has left.
	mostAfter = time.Second
)

// places are bodies with a place for a hostile value, by route.
var places = map[string][]string{
	"/v1/chat/completions": {
		`{"messages":%s}`, `{"messages":[{"role":"user","content":%s}],"max_tokens":1}`, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":%s},{"role":"user","content":"c"}],"max_tokens":1}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":%s}}]},{"role":"tool","content":"a"}],"max_tokens":1}`,
		`{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"stop":%s}`, `{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"logit_bias":%s}`,
		`{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"metadata":%s}`, `{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"tools":%s}`, `%s`,
	},
	"/v1/completions":           {`{"prompt":%s,"max_tokens":1}`, `{"prompt":[%s],"max_tokens":1}`, `{"prompt":"a","suffix":%s,"max_tokens":1}`, `{"prompt":"a","stop":%s,"max_tokens":1}`},
	"/v1/responses":             {`{"input":%s,"max_output_tokens":1}`, `{"input":[{"role":"user","content":%s}],"max_output_tokens":1}`, `{"input":"a","instructions":%s,"max_output_tokens":1}`, `{"input":[{"type":"function_call","call_id":"a","name":"f","arguments":%s},{"type":"function_call_output","call_id":"a","output":"a"}],"max_output_tokens":1}`},
	"/v1/messages":              {`{"max_tokens":1,"messages":%s}`, `{"max_tokens":1,"messages":[{"role":"user","content":%s}]}`, `{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"system":%s}`, `{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"stop_sequences":%s}`},
	"/v1/messages/count_tokens": {`{"messages":[{"role":"user","content":%s}]}`, `{"messages":%s}`},
	"/api/chat":                 {`{"messages":%s,"options":{"num_predict":1}}`, `{"messages":[{"role":"user","content":%s}],"options":{"num_predict":1}}`, `{"messages":[{"role":"user","content":"a"}],"options":%s}`},
	"/api/generate":             {`{"prompt":%s,"options":{"num_predict":1}}`, `{"prompt":%s,"raw":true,"options":{"num_predict":1}}`, `{"prompt":"a","context":%s,"options":{"num_predict":1}}`},
	"/api/show":                 {`{"model":%s}`},
	"/tokenize":                 {`{"text":%s}`, `{"text":%s,"parse_special":false}`},
	"/detokenize":               {`{"tokens":%s}`},
	"/web/markdown":             {`{"text":%s}`, `{"text":%s,"partial":true}`},
}

// pieces are what a hostile string repeats; other than JSON's own they aim at the
// tokenizer, the formats of conversations, the renderer of Markdown and the highlighter.
var pieces = []string{"a", " ", "ab ", "0", "é", "🎪", `\u0000`, `\ud800`, `\n`, `\\`, `\"`, "<｜User｜>", "<think>", "</think>", "{", "[", "|a", `|a\n`, `\n- `, `> `, "*a_ ", "`", "[a](", "<a ", `[a]\n\n`, "http://a.b ", "```go\\n\\\"\\\\", "aA1 ", "ꦀ", "\u0300"}

// hostileValue draws a hostile JSON value of some length.
func hostileValue(r *rand.Rand, length int) string {
	repeated := func(piece, between string) string {
		return strings.Repeat(piece+between, length/len(piece+between)) + piece
	}
	switch r.IntN(12) {
	case 0:
		return "[" + repeated("0", ",") + "]"
	case 1:
		return "[" + repeated(pick(r, `"a"`, "{}", "[]", `{"role":"user","content":"a"}`, `{"type":"text","text":"a"}`, "1e9", `"\u0000"`), ",") + "]"
	case 2:
		depth := min(length/2, 4000)
		return strings.Repeat("[", depth) + strings.Repeat("]", depth)
	case 3:
		var b strings.Builder
		b.WriteString("{")
		for i := 0; b.Len() < length; i++ {
			fmt.Fprintf(&b, `"%d":%d,`, i, i%3)
		}
		return b.String() + `"x":0}`
	case 4:
		return repeated("9", "")
	case 5: // a table that the renderer would fill up
		columns := 1 + r.IntN(3000)
		return `"` + strings.Repeat("|a", columns) + `\n` + strings.Repeat("|-", columns) + `\n` + strings.Repeat(`a\n`, max(0, length-4*columns)/3) + `"`
	case 6: // an address that many links have
		return `"[a]: http://` + strings.Repeat("x", length/2) + `\n\n` + strings.Repeat(`[a]\n\n`, length/14) + `"`
	default:
		return `"` + textOf(r, length) + `"`
	}
}

// textOf is the inside of a JSON string made of one to three pieces.
func textOf(r *rand.Rand, length int) string {
	unit := pick(r, pieces...)
	for range r.IntN(3) {
		unit += pick(r, pieces...)
	}
	return strings.Repeat(unit, max(1, length/len(unit)))
}

// hostileRequest draws a request of at most mostBody; Markdown has at most 64 KiB.
func hostileRequest(r *rand.Rand, route string) string {
	length := mostBody - 512
	if route == "/web/markdown" {
		length = 60 << 10
	}
	body := strings.ReplaceAll(pick(r, places[route]...), "%s", hostileValue(r, length-r.IntN(length/4)))
	if len(body) > mostBody {
		return body[:mostBody]
	}
	return body
}

// slowSchemas are bodies with constraints that once took a minute to compile.
func slowSchemas() []string {
	var consts, numbers strings.Builder
	for i := range 16_000 {
		fmt.Fprintf(&consts, `{"const":"v%d"},`, i)
	}
	for i := range 2000 {
		fmt.Fprintf(&numbers, `%de9999,`, i+1)
	}
	body := func(schema string) string {
		return `{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}}`
	}
	return []string{
		body(`{"oneOf":[` + consts.String() + `{"const":0}]}`),
		body(`{"$defs":{"e":{"enum":[` + numbers.String() + `0]}},"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/e"},`, 200) + `{"$ref":"#/$defs/e"}]}`),
	}
}

// usage is what the process has taken.
type usage struct {
	cpu       time.Duration
	rss, peak int64
}

// used reads the usage; the peak is that since the last call.
func (s *server) used(t *testing.T) usage {
	t.Helper()
	stat := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/stat", s.Pid()))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var u usage
	for _, i := range []int{11, 12} { // utime and stime, in hundredths of a second
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		require.NoError(t, err)
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	u.rss, u.peak = s.Memory("VmRSS"), s.Memory("VmHWM")
	require.Positive(t, min(u.rss, u.peak))
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Pid()), []byte("5"), 0)) // the peak begins again
	return u
}

// TestOneRequest: whatever a request of at most 1 MiB holds, it takes a bounded time of a
// processor and a bounded memory, on every route.
func TestOneRequest(t *testing.T) {
	s := serve(t, "", "--api-key", apiKey, "--ctx", "256")
	rounds := 2
	if testenv.At(testenv.Full) {
		rounds = 20
	}
	slowest, largest := map[string]time.Duration{}, map[string]int64{}
	for round := range rounds {
		for route := range places {
			r := rand.New(rand.NewPCG(*seed, uint64(round)))
			body := hostileRequest(r, route)
			before := s.used(t)
			resp, err := s.request(t.Context(), "POST", route, body)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			require.NoError(t, err)
			after := s.used(t)
			what := fmt.Sprintf("seed %d, round %d, %s: status %d: %.200s", *seed, round, route, resp.StatusCode, body)
			require.Contains(t, allowed, resp.StatusCode, what)
			require.Less(t, after.cpu-before.cpu, mostCPU, what)
			require.Less(t, after.peak-before.rss, int64(mostMemory), what)
			slowest[route] = max(slowest[route], after.cpu-before.cpu)
			largest[route] = max(largest[route], (after.peak-before.rss)>>20)
		}
	}
	t.Logf("most CPU time: %v; most MiB: %v", slowest, largest)
}

// TestClientsThatLeave: the work of a request ends within a second of a processor after its
// client has left.
func TestClientsThatLeave(t *testing.T) {
	s := serve(t, "", "--api-key", apiKey, "--ctx", "2048")
	stream := `{"messages":[{"role":"user","content":"Hi"}],"stream":true,"max_tokens":1900,"ignore_eos":true}`
	requests := []struct{ route, body string }{
		{"/v1/chat/completions", stream}, {"/v1/chat/completions", strings.Replace(stream, `"stream":true,`, "", 1)},
		{"/v1/completions", `{"prompt":"Hi","max_tokens":1900,"ignore_eos":true,"n":4,"logprobs":5}`},
		{"/v1/messages", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1900}`},
		{"/api/generate", `{"prompt":"Hi","options":{"num_predict":1900}}`},
	}
	for _, body := range slowSchemas() {
		requests = append(requests, struct{ route, body string }{"/v1/chat/completions", body})
	}
	rounds := 1
	if testenv.At(testenv.Full) {
		rounds = 2
	}
	for round := range rounds {
		for route := range places {
			r := rand.New(rand.NewPCG(*seed, uint64(1000+round)))
			requests = append(requests, struct{ route, body string }{route, hostileRequest(r, route)})
		}
	}
	for _, x := range requests {
		conn, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", x.route, apiKey, len(x.body), x.body)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
		require.NoError(t, conn.Close())
		before := s.used(t)
		require.NoError(t, harness.Until(t.Context(), "the request to end", func() (bool, string) {
			m, err := s.metrics(t.Context())
			require.NoError(t, err)
			return m["ringmaster_http_requests_in_flight"] == 1 && m["ringmaster_engine_active"] == 0, fmt.Sprint(m)
		}))
		require.Less(t, s.used(t).cpu-before.cpu, mostAfter+mostAfter/2, "%s: %.200s", x.route, x.body) // with the requests for metrics
	}
}

// graceOfServe is what docs/operations.md promises: the grace for running requests, the
// time to send their ends, and the engine's last step.
const graceOfServe = 30 * time.Second

// TestTerminated: SIGTERM ends the process within its grace whatever is under way.
func TestTerminated(t *testing.T) {
	testenv.Need(t, testenv.Full, "SIGTERM during hostile requests, which waits for its grace")
	s := serve(t, "", "--api-key", apiKey, "--ctx", "2048")
	send := func(text string) net.Conn {
		conn, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetWriteDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		return conn
	}
	post := func(route, fields, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n%s\r\n%s", route, apiKey, fields, body)
	}
	whole := func(route, body string) string {
		return post(route, fmt.Sprintf("Content-Length: %d\r\n", len(body)), body)
	}
	// Streams that no one reads, and answers that take longer than the grace.
	for range 4 {
		send(whole("/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"stream":true,"max_tokens":2000,"ignore_eos":true}`))
		send(whole("/v1/completions", `{"prompt":"Hi","max_tokens":2000,"ignore_eos":true}`))
	}
	// Bodies that do not come, or come without end; connections that say nothing.
	for range 8 {
		send(post("/v1/chat/completions", "Content-Length: 100000\r\n", "{"))
		send(post("/v1/chat/completions", "Transfer-Encoding: chunked\r\n", "1\r\n{\r\n"))
		send(post("/nothing", "Content-Length: 100000\r\n", "{"))
		send("GET / HT")
		send("")
		send(strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000))
	}
	for _, body := range slowSchemas() {
		send(whole("/v1/chat/completions", body))
	}
	r := rand.New(rand.NewPCG(*seed, 2000))
	for route := range places {
		for range 3 {
			send(whole(route, hostileRequest(r, route)))
		}
	}
	began := time.Now()
	require.NoError(t, s.Signal(syscall.SIGTERM))
	// Others come meanwhile.
	for s.Running() && time.Since(began) < graceOfServe {
		conn, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err != nil {
			break // it listens no more
		}
		_ = conn.Close()
	}
	require.NoError(t, harness.Until(t.Context(), "the process to end", func() (bool, string) {
		require.Less(t, time.Since(began), graceOfServe, "%s", s.Log)
		return !s.Running(), ""
	}))
	t.Logf("ended %v after SIGTERM", time.Since(began).Round(time.Millisecond))
	code, err := s.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, code, "%s", s.Log)
	require.NotContains(t, s.Log.String(), "panic")
}
