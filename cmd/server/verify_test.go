package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/internal/testenv"
	"ringmaster/internal/verify"
)

// hashing is a server with the real API and engine over a model whose logits are a hash
// of what is before. What change makes of the events, it sends.
func hashing(t *testing.T, change func(events string) string) string {
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{MaxActive: 8, QueueLength: 8})
	require.NoError(t, err)
	h := api.New(api.Config{Engine: api.FromEngine(e), Tokenizer: apitest.Tokenizer{}, Log: slog.New(slog.DiscardHandler), Model: api.Model{ID: "hashing", ContextLength: 1 << 16}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change == nil || !strings.HasSuffix(r.URL.Path, "/completions") {
			h.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		w.WriteHeader(rec.Code)
		fmt.Fprint(w, change(rec.Body.String()))
	}))
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, e.Close(context.Background()))
	})
	return server.URL
}

var logprob = regexp.MustCompile(`"token_logprobs":\[[^\]]*\]`)
var number = regexp.MustCompile(`-?\d+(\.\d+)?(e-?\d+)?`)

// shift adds d to every log-probability of a stream.
func shift(d float64) func(string) string {
	return func(events string) string {
		return logprob.ReplaceAllStringFunc(events, func(list string) string {
			return number.ReplaceAllStringFunc(list, func(s string) string {
				x, err := strconv.ParseFloat(s, 64)
				if err != nil {
					panic(err)
				}
				return strconv.FormatFloat(x+d, 'g', -1, 64)
			})
		})
	}
}

// TestVerify: a server passes against itself, its twin and its record; a different
// answer, other bits, rounding beyond the tolerance, a server that does not repeat
// itself and one that is too slow are found; the report has every verdict.
func TestVerify(t *testing.T) {
	good, twin := hashing(t, nil), hashing(t, nil)
	dir := t.TempDir()
	report, record := filepath.Join(dir, "report.json"), filepath.Join(dir, "record.json")
	check := func(args ...string) (map[string]string, error) {
		t.Helper()
		out, err := command(t, append([]string{"verify", "--tokens", "12", "--report", report}, args...)...)
		t.Log(out)
		text, rerr := os.ReadFile(report)
		require.NoError(t, rerr, "%v", err)
		r := testenv.FromJSON[verify.Report](t, text)
		verdicts := map[string]string{"": r.Verdict}
		for _, c := range r.Checks {
			verdicts[c.Name] = c.Verdict
		}
		require.Len(t, r.Checks, 5)
		require.Equal(t, 12, r.Tokens)
		return verdicts, err
	}
	passed := map[string]string{"": "pass", "repeat": "pass", "drafts": "pass", "company": "pass", "speed": "pass", "reference": "pass"}
	got, err := check("--url", good, "--against", twin, "--reduce", "exact")
	require.NoError(t, err)
	require.Equal(t, passed, got)
	got, err = check("--url", good, "--record", record)
	require.NoError(t, err)
	require.Equal(t, "not checked", got["reference"])
	got, err = check("--url", twin+"/v1", "--recorded", record)
	require.NoError(t, err)
	require.Equal(t, passed, got)

	rounded := hashing(t, shift(0.01))
	got, err = check("--url", rounded, "--recorded", record)
	require.NoError(t, err)
	require.Equal(t, passed, got, "but for rounding")
	for name, args := range map[string][]string{
		"reference": {"--url", hashing(t, func(e string) string { return strings.ReplaceAll(e, `"tokens":["`, `"tokens":["z`) }), "--recorded", record},
		"bits":      {"--url", rounded, "--recorded", record, "--reduce", "exact"},
		"drift":     {"--url", hashing(t, shift(0.5)), "--recorded", record},
		"speed":     {"--url", good, "--expect-decode", "1e9"},
	} {
		got, err = check(args...)
		require.Equal(t, 5, exitCode(err), name)
		require.Equal(t, "fail", got[""])
		if name != "speed" {
			name = "reference"
		}
		require.Equal(t, "fail", got[name])
	}
	var calls atomic.Int64
	moody := hashing(t, func(events string) string { return shift(1e-9 * float64(calls.Add(1)))(events) })
	got, err = check("--url", moody)
	require.Equal(t, 5, exitCode(err))
	require.Equal(t, "fail", got["repeat"])
	require.Equal(t, "pass", got["company"], "within the tolerance")
}

// TestVerifyFailures: what cannot be asked is exit code 1, what cannot work 2.
func TestVerifyFailures(t *testing.T) {
	good := hashing(t, nil)
	broken := func(cut string) string {
		return hashing(t, func(events string) string {
			if i := strings.Index(events, cut); i >= 0 {
				return events[:i]
			}
			return events
		})
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	bad := written(t, `{"prompts":["x"],"answers":[]}`)
	for want, tt := range map[string]struct {
		code int
		args []string
	}{
		"stream ended before":   {1, []string{"--url", broken("data: [DONE]")}},
		"of the prompt and":     {1, []string{"--url", hashing(t, func(e string) string { return strings.ReplaceAll(e, "completion_tokens", "other") })}},
		"is not JSON":           {1, []string{"--url", hashing(t, func(e string) string { return strings.ReplaceAll(e, "data: {", "data: <") })}},
		"the answer failed":     {1, []string{"--url", hashing(t, func(e string) string { return "data: {\"error\":{\"message\":\"lost\"}}\n\n" })}},
		"404":                   {1, []string{"--url", other.URL}},
		"is the server running": {1, []string{"--url", "http://127.0.0.1:1"}},
		"--url is":              {2, []string{"--url", "here"}},
		"--against is":          {2, []string{"--url", good, "--against", "there"}},
		"not both":              {2, []string{"--url", good, "--against", good, "--recorded", bad}},
		"is no record":          {2, []string{"--url", good, "--recorded", bad}},
		"no such file":          {2, []string{"--url", good, "--recorded", bad + ".not"}},
		"--reduce is":           {2, []string{"--reduce", "mean"}},
		"--tokens is":           {2, []string{"--tokens", "1"}},
		"--tolerance is":        {2, []string{"--tolerance", "-1"}},
		"no leader at":          {1, []string{"--coordinator", "127.0.0.1:1"}},
		"expected HOST:PORT":    {2, []string{"--coordinator", "here"}},
		"--soak examines":       {2, []string{"--soak", "1s"}},
		"--soak is":             {2, []string{"--coordinator", "127.0.0.1:1", "--soak", "-1s"}},
		"--pause is":            {2, []string{"--coordinator", "127.0.0.1:1", "--pause", "1h"}},
		"--rest is":             {2, []string{"--coordinator", "127.0.0.1:1", "--rest", "-1"}},
		"--link is":             {2, []string{"--coordinator", "127.0.0.1:1", "--link", "wet string"}},
		"nothing to examine":    {2, []string{"--coordinator", "127.0.0.1:1", "--recompute=false", "--soak", "0"}},
		"no such file or":       {2, []string{"--coordinator", "127.0.0.1:1", "--model", bad + ".gguf"}},
		"--cluster-key-file":    {2, []string{"--coordinator", "127.0.0.1:1", "--cluster-key-file", bad + ".key"}},
	} {
		_, err := command(t, append([]string{"verify", "--timeout", "20s"}, tt.args...)...)
		require.ErrorContains(t, err, want)
		require.Equal(t, tt.code, exitCode(err), "%v", err)
	}
}
