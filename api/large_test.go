package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/constraint/jsonschema/schematest"
	"ringmaster/internal/testenv"
)

// TestLargeBodies: a body of the largest allowed size, with 200 tools, is answered like a
// short one, or refused because its text does not fit the context. One byte more is a
// 413, whether the length is announced or not, in the form of the dialect. The allocated
// bytes are a small multiple of the body, a larger one where all of it is in the prompt,
// because each byte is a token here. The full form has bodies of 32 MiB.
func TestLargeBodies(t *testing.T) {
	const most = 32 << 20
	size := 1 << 20
	if testenv.At(testenv.Full) {
		size = most
	}
	e := answering("ok")
	c := testConfig(e)
	c.MaxBody = int64(size)
	h := New(c)
	c.Model.ContextLength = 1 << 30
	huge := New(c)
	send := func(h http.Handler, path, body string, announced bool) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		if !announced {
			r = httptest.NewRequest(http.MethodPost, path, io.MultiReader(strings.NewReader(body)))
		}
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, shown := range []bool{false, true} {
		bodies := apitest.Large(size, shown)
		for path, body := range bodies {
			require.Len(t, body, size)
			for _, announced := range []bool{true, false} {
				if shown && !announced {
					continue
				}
				what := fmt.Sprintf("%s, shown %v, announced %v", path, shown, announced)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				asked := len(e.submitted())
				w := send(h, path, body, announced)
				runtime.ReadMemStats(&after)
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*size+4<<20), what)
				if shown && announced {
					runtime.ReadMemStats(&before)
					w := send(huge, path, body, true)
					runtime.ReadMemStats(&after)
					if size > 1<<20 && strings.Contains(body, "tool_1") && path != "/v1/messages/count_tokens" {
						require.Equal(t, http.StatusBadRequest, w.Code, what)
						require.Contains(t, errorMessage(t, path, w.Body.Bytes()), "the schemas of the tools have more than 1048576 bytes in all", what)
					} else {
						require.Equal(t, http.StatusOK, w.Code, "%s: %.300s", what, w.Body)
					}
					require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64*size+64<<20), what)
				}
				if !shown && path != "/api/chat" {
					require.Equal(t, http.StatusOK, w.Code, "%s: %.300s", what, w.Body)
					if path != "/v1/messages/count_tokens" {
						require.Len(t, e.submitted(), asked+1, what)
					}
				} else {
					require.Equal(t, http.StatusBadRequest, w.Code, "%s: %.300s", what, w.Body)
					require.Contains(t, errorMessage(t, path, w.Body.Bytes()), "does not fit the context of 4096 tokens", what)
				}
				w = send(h, path, body[:len(body)-1]+" }", announced)
				require.Equal(t, http.StatusRequestEntityTooLarge, w.Code, "%s: %.300s", what, w.Body)
				require.Equal(t, fmt.Sprintf("The request body exceeds %d bytes.", size), errorMessage(t, path, w.Body.Bytes()), what)
				require.Equal(t, "close", w.Header().Get("Connection"), "the rest stays unread")
			}
		}
	}
}

// TestManyLargeBodies: when several bodies of the largest size come at once, the server
// takes as many as the budget for bodies holds. It refuses the others as a busy server
// does, in the form of their dialect, before they take memory.
func TestManyLargeBodies(t *testing.T) {
	const clients = 16
	size := 512 << 10
	if testenv.At(testenv.Full) {
		size = 8 << 20
	}
	c := testConfig(answering("ok"))
	c.MaxBody, c.BodyBudget = int64(size), int64(2*size)
	s := newServer(c)
	h := s.handler()
	bodies := apitest.Large(size, false)
	var paths []string
	for path := range bodies {
		paths = append(paths, path)
	}
	var mu sync.Mutex
	got := map[int]int{}
	var all, begun sync.WaitGroup
	begun.Add(clients)
	for i := range clients {
		all.Go(func() {
			path := paths[i%len(paths)]
			// Half of the body without an announced length has come when the others
			// begin.
			half := &halting{r: strings.NewReader(bodies[path]), at: size / 2, reached: begun.Done, wait: begun.Wait}
			r := httptest.NewRequest(http.MethodPost, path, half)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			half.reach() // it was refused before
			mu.Lock()
			defer mu.Unlock()
			got[w.Code]++
			switch {
			case w.Code == http.StatusOK || path == "/api/chat" && w.Code == http.StatusBadRequest:
			case w.Code == http.StatusTooManyRequests, path == "/v1/messages" && w.Code == 529:
				if message := errorMessage(t, path, w.Body.Bytes()); !strings.Contains(message, "take up all of the server") || w.Header().Get("Retry-After") == "" {
					t.Errorf("%s: %s", path, message)
				}
			default:
				t.Errorf("%s: %d %.300s", path, w.Code, w.Body)
			}
		})
	}
	all.Wait()
	t.Log(got)
	require.GreaterOrEqual(t, got[http.StatusTooManyRequests]+got[529], clients-4, "half of a body each: at most four are within the budget")
	used, refused := s.bodies.usage()
	require.Zero(t, used)
	require.Positive(t, refused)
	for path, body := range bodies { // and the server serves as before
		if path != "/api/chat" {
			require.Equal(t, http.StatusOK, call(h, http.MethodPost, path, body).Code)
		}
	}
}

// halting is a body that stops in its middle.
type halting struct {
	r       *strings.Reader
	at      int
	once    sync.Once
	reached func()
	wait    func()
}

func (h *halting) reach() { h.once.Do(h.reached) }

func (h *halting) Read(b []byte) (int, error) {
	read := int(h.r.Size()) - h.r.Len()
	if read >= h.at {
		h.reach()
		h.wait()
		return h.r.Read(b)
	}
	return h.r.Read(b[:min(len(b), h.at-read)])
}

// TestHugeSchemas: a schema of a tool or of one answer that is long, deep, full of
// references or of members, or made by seed from the most costly keywords, is enforced or
// refused by name in every dialect. That takes at most 2 s of a processor and 256 MiB
// plus 128 bytes for each byte of the body.
func TestHugeSchemas(t *testing.T) {
	h := New(testConfig(answering("ok")))
	rep := strings.Repeat
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"m%d":{"type":"string"},`, i)
		}
		return `{"type":"object","properties":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}
	references := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
		}
		return fmt.Sprintf(`{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{%s"d%d":{"type":"integer"}}}`, b.String(), n)
	}
	schemas := map[string]string{
		"long":         `{"type":"object","description":"` + rep("a", 1<<20) + `"}`,
		"deep":         rep(`{"type":"object","properties":{"a":`, 3000) + `{}` + rep(`}}`, 3000),
		"deep enum":    `{"type":"object","properties":{"a":{"enum":[` + rep(`[`, 4000) + rep(`]`, 4000) + `]}}}`,
		"members":      members(10_000),
		"references":   references(40),
		"alternatives": `{"type":"object","properties":{"a":{"anyOf":[` + rep(`{"type":"object","properties":{"a":{"type":"string"}}},`, 5000) + `{}]}}}`,
		"counts":       `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","minLength":1000000,"maxLength":1000000},"minItems":1000000}}}`,
		"pattern":      `{"type":"object","properties":{"a":{"type":"string","pattern":"` + rep("(a|b)*", 2000) + `"}}}`,
		"numbers":      `{"type":"object","properties":{"a":{"type":"number","multipleOf":1e-300,"minimum":` + rep("9", 300) + `}}}`,
	}
	seeds, largest := 6, 32<<10
	if testenv.At(testenv.Full) {
		seeds, largest = 60, 1<<20-1<<10
	}
	for seed := range seeds {
		if s := schematest.Hostile(uint64(1000+seed), largest); len(s) < 1<<20-1<<10 {
			schemas[fmt.Sprintf("seed %d", seed)] = `{"type":"object",` + s[1:]
		}
	}
	for kind, schema := range schemas {
		for path, body := range map[string]string{
			"/v1/chat/completions strict": `{` + user + `,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":%s}}]}`,
			"/v1/chat/completions":        `{` + user + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":%s}}}`,
			"/v1/responses tool":          `{"input":"Hi","tools":[{"type":"function","name":"f","parameters":%s}]}`,
			"/v1/responses":               `{"input":"Hi","text":{"format":{"type":"json_schema","name":"n","schema":%s}}}`,
			"/v1/messages tool":           `{` + user + `,"tools":[{"name":"f","input_schema":%s}]}`,
			"/v1/messages":                `{` + user + `,"output_config":{"format":{"type":"json_schema","schema":%s}}}`,
			"/api/chat tool":              `{` + user + `,"tools":[{"type":"function","function":{"name":"f","parameters":%s}}]}`,
			"/api/chat":                   `{` + user + `,"format":%s}`,
			"/api/generate":               `{"prompt":"Hi","format":%s}`,
		} {
			path, _, _ = strings.Cut(path, " ")
			body = strings.Replace(body, "%s", schema, 1)
			began := cpuTime(t)
			w, used := measured(h, path, body)
			took := cpuTime(t) - began
			what := fmt.Sprintf("%s %s %.100s: %d", kind, path, body, w.Code)
			require.Less(t, used, uint64(256<<20+128*len(body)), what)
			require.Less(t, took, 2*time.Second, what)
			if w.Code != http.StatusOK {
				require.Equal(t, http.StatusBadRequest, w.Code, what)
				require.NotEmpty(t, errorMessage(t, path, w.Body.Bytes()), what)
				require.Less(t, w.Body.Len(), 8<<10, what)
			} else {
				require.True(t, bytes.HasSuffix(bytes.TrimSpace(w.Body.Bytes()), []byte("}")), what)
			}
		}
	}
}

// cpuTime returns the processor time of the process so far.
func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
