package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFormsThatCannotBeMet: a form that allows nothing, or that takes too much work to
// follow, is the client's mistake: a 400 that says why, in an answer and in a stream, and
// no error in the log. An impossible alternative beside a possible one does no harm.
func TestFormsThatCannotBeMet(t *testing.T) {
	var log bytes.Buffer
	c := realConfig(t, "The answer.")
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	h := New(c)
	var deep strings.Builder
	for i := range 300 {
		fmt.Fprintf(&deep, `r%d ::= \"a\" r%d \"b\"\n`, i, i+1)
	}
	schema := func(s string) string {
		return `"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + s + `}}`
	}
	var names strings.Builder
	for i := range 120 {
		fmt.Fprintf(&names, `"%d%s":{},`, i, strings.Repeat("a", 4000))
	}
	nothing := "nothing can satisfy it"
	for body, want := range map[string]string{
		`"guided_regex":"[^\\x00-\\x{10FFFF}]"`:                                      nothing,
		`"guided_regex":"ab[^\\s\\S]c"`:                                              nothing,
		`"grammar":"root ::= \"a\" x\nx ::= x2\nx2 ::= [a-c] x"`:                     "never ends",
		schema(`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`): nothing,
		schema(`{"type":"array","items":{"$ref":"#/$defs/e"},"minItems":1,"$defs":{"e":{"type":"array","items":{"$ref":"#/$defs/e"},"minItems":1}}}`): nothing,
		schema(`{"$ref":"#/$defs/n","$defs":{"n":{"allOf":[{"type":"string"},{"type":"null"}]}}}`):                                                    nothing,
		schema(`{"type":"integer","enum":["a","b"]}`): nothing,
		schema(`{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/x"}]}},"required":["a"],"$defs":{"x":{"const":1,"type":"string"}}}`): nothing,
		`"grammar":"root ::= r0\n` + deep.String() + `r300 ::= \"c\""`:     "only beyond 256 nested rules",
		`"guided_regex":"((a|b|ab|..|.){30,60}|(.|..|...){30,60}){10,16}"`: "too ambiguous",
		`"guided_json":{"properties":{` + names.String() + `"x":{}}}`:      "too much work",
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			log.Reset()
			w := call(h, "POST", "/v1/chat/completions", `{`+user+`,"max_tokens":2000,`+body+stream+`}`)
			what := fmt.Sprintf("%.100s%s: %d %.300s", body, stream, w.Code, w.Body)
			if w.Code == http.StatusOK { // the answer has begun
				require.NotEmpty(t, stream, what)
				require.Contains(t, w.Body.String(), `"code":"unsupported_schema"`, what)
			} else {
				require.Equal(t, http.StatusBadRequest, w.Code, what)
			}
			require.Contains(t, w.Body.String(), want, what)
			require.NotContains(t, log.String(), "level=ERROR", what)
			require.NotContains(t, log.String(), "level=WARN", what)
		}
	}
	w := call(h, "POST", "/v1/chat/completions", `{`+user+`,`+schema(`{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"],"additionalProperties":false},{"const":"b"}]}`)+`}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.NotContains(t, w.Body.String(), "error")
}

// TestPlacesAreGivenBack: requests that need grammars give their places back however they
// end; those without a place are refused.
func TestPlacesAreGivenBack(t *testing.T) {
	c := realConfig(t, "The answer.")
	h := New(c)
	var all sync.WaitGroup
	codes := make([]int, 100)
	for i := range codes {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 900 + i
			if i%7 == 0 {
				n = 2000 // it is refused
			}
			body := fmt.Sprintf(`{%s,"max_tokens":1,"guided_json":{"properties":{"p%d":{"type":"integer","multipleOf":%d}}}}`, user, i, n)
			r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)).WithContext(ctx)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if i%3 == 0 {
				go cancel()
			}
			h.ServeHTTP(w, r)
			codes[i] = w.Code
		})
	}
	all.Wait()
	for i, code := range codes {
		require.Contains(t, []int{200, 400, 429, 499}, code, "request %d", i)
	}
	require.Zero(t, c.Engine.Stats().Queued)
	require.Equal(t, http.StatusOK, call(h, "POST", "/v1/chat/completions", `{`+user+`,"max_tokens":1}`).Code)
}

// TestShutdownEndsForms: the end of a server's grace period ends all forms that are being
// made or wait for it.
func TestShutdownEndsForms(t *testing.T) {
	s, addr, served := listen(t, New(realConfig(t, "The answer.")), ServerOptions{})
	const clients = 16
	var sent, all sync.WaitGroup
	sent.Add(clients)
	for i := range clients {
		all.Go(func() {
			var values strings.Builder
			for j := range 2000 {
				fmt.Fprintf(&values, "1e%d,", 9999-j-i)
			}
			references := strings.Repeat(`{"$ref":"#/$defs/e"},{"$ref":"#/$defs/f"},`, 100)
			body := `{` + user + `,"guided_json":{"$defs":{"e":{"enum":[` + values.String() + `0]},"f":{"enum":[` + values.String() + `1]}},"allOf":[` + references + `{}]}}`
			once := sync.OnceFunc(sent.Done)
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/chat/completions", io.MultiReader(strings.NewReader(body), readerFunc(func([]byte) (int, error) { once(); return 0, io.EOF })))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			if w, err := http.DefaultClient.Do(r); err == nil {
				_ = w.Body.Close()
			}
			once()
		})
	}
	sent.Wait()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(over) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second): // one of these schemas took longer
		require.Fail(t, "schemas hold up the end of the server")
	}
	require.NoError(t, <-served)
	all.Wait()
}

// readerFunc is a function as a reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
