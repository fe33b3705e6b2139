// Package agents runs the true programs of coding agents against a server: the real
// api, engine, chat formats and constraints over a scripted model. The agent is asked
// to write a file; the model calls the tool for it; the file must be there with the
// right content, and the agent must show the model's last words.
package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
)

const (
	apiKey  = "sk-test"
	content = "Hello from the ring,\n\"quoted\" & <b>bold</b>\n"
	done    = "The file is written."
	request = "Write the agreed text to the file "
)

// play is the model: it writes the file that the user names, with the tool that the
// agent offers for it, and then says so. Whatever else it is asked, it says "Fine.".
func play(history []int32) string {
	text := apitest.Tokenizer{}.Decode(history)
	last := len(history) - 1
	for last > 0 && history[last] != apitest.User {
		last--
	}
	turn := apitest.Tokenizer{}.Decode(history[last:])
	answer := "Fine."
	switch name, function := writer(text); {
	case strings.Contains(turn, "<tool_result>"):
		answer = done
	case function == nil || !strings.Contains(turn, request):
	default:
		_, rest, _ := strings.Cut(turn, request)
		path, _, _ := strings.Cut(rest, " ")
		answer = "I write it.\n\n" + call(name, function, path)
	}
	if history[len(history)-1] == apitest.Think {
		return "I think.</think>" + answer
	}
	return answer
}

// writer finds the function that writes a file, or runs a command, among those in the prompt, with the
// members of its schema in order.
func writer(prompt string) (name string, parameters []string) {
	for line := range strings.Lines(prompt) {
		var f struct {
			Name       string
			Parameters struct{ Properties json.RawMessage }
		}
		if !strings.HasPrefix(line, `{"name": "`) || json.Unmarshal([]byte(line), &f) != nil || strings.ToLower(f.Name) != "write" && f.Name != "exec_command" {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(f.Parameters.Properties))
		if _, err := d.Token(); err != nil {
			return "", nil
		}
		for d.More() {
			key, err := d.Token()
			var skip json.RawMessage
			if err != nil || d.Decode(&skip) != nil {
				return "", nil
			}
			parameters = append(parameters, fmt.Sprint(key))
		}
		return f.Name, parameters
	}
	return "", nil
}

// call is the markup of a call that writes the file.
func call(name string, parameters []string, path string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=%q>\n", name)
	for _, p := range parameters {
		value := map[string]string{"file_path": path, "filePath": path, "path": path, "content": content, "cmd": "cat > " + path + " <<'END'\n" + content + "END"}[p]
		if value != "" {
			fmt.Fprintf(&b, "<｜DSML｜parameter name=%q string=\"true\">%s</｜DSML｜parameter>\n", p, value)
		}
	}
	return b.String() + "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
}

// server is a server and what it was asked.
type server struct {
	url string // without a path

	mu       sync.Mutex
	requests []string // method, path and status of each
	bodies   []string
}

// start runs a server for the test.
func start(t *testing.T) *server {
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: play, ContextLength: 1 << 20})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{})
	require.NoError(t, err)
	handler := api.New(api.Config{
		Engine: api.FromEngine(e), Tokenizer: apitest.Tokenizer{}, Model: api.Model{ID: "scripted", ContextLength: 1 << 20},
		APIKeys: []string{apiKey}, Hosts: api.LoopbackHosts(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	out := &server{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	out.url = "http://" + l.Addr().String()
	s := api.NewServer(out.record(handler), api.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
		require.NoError(t, e.Close(context.Background()))
		require.Empty(t, m.Violations())
		if dir := os.Getenv("AGENT_REQUESTS"); dir != "" { // to look at what an agent sends
			out.mu.Lock()
			defer out.mu.Unlock()
			for i, b := range out.bodies {
				require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%s-%02d.json", dir, strings.ReplaceAll(t.Name(), "/", "-"), i), []byte(b), 0o600))
			}
		}
	})
	return out
}

// record keeps what is asked and answered.
func (s *server) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		status := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(status, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, fmt.Sprint(r.Method, " ", r.URL.Path, " ", status.code))
		s.bodies = append(s.bodies, string(body))
	})
}

type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// asked reports whether a request had a path and a status.
func (s *server) asked(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.requests, line)
}
