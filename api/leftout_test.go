package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/internal/testenv"
)

// logging returns a configuration with its log.
func logging(e Engine) (Config, *bytes.Buffer) {
	var log bytes.Buffer
	c := testConfig(e)
	c.StrictModelNames = false
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	return c, &log
}

// What an answer does not take into account is in the request's log line: dropped tools
// and items as a warning, unknown fields by name. Harmless fields are not.
func TestLeftOut(t *testing.T) {
	c, log := logging(answering("ok"))
	h := New(c)
	for _, tt := range []struct{ path, body, level, says string }{
		{"/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"teleport"},{"type":"function","name":"f"}]}`, "WARN", `dropped="tool teleport, tool web_search"`},
		{"/v1/responses", `{"input":"x","tools":[{"type":"shell","environment":{"type":"container_auto"}},{"type":"tool_search"}]}`, "WARN", `dropped="tool shell, tool tool_search"`},
		{"/v1/responses", `{"input":[{"role":"user","content":"x"},{"type":"compaction","encrypted_content":"y"}]}`, "WARN", `dropped="item compaction"`},
		{"/v1/responses", `{"input":"x","include":["message.output_text.logprobs","reasoning.encrypted_content"]}`, "WARN", `dropped="include message.output_text.logprobs"`},
		{"/v1/responses", `{"input":"x","store":true,"include":["reasoning.encrypted_content"],"text":{"verbosity":"low"},"reasoning":{"summary":"auto"}}`, "INFO", ""},
		{"/v1/responses", `{"input":"x","reasoning":{"mode":"pro"},"max_tool_calls":1}`, "INFO", `ignored_fields="max_tool_calls, reasoning.mode"`},
		{"/v1/messages", `{` + user + anthropicTools + `}`, "WARN", `dropped="tool web_search_20250305"`},
		{"/v1/messages", `{` + user + `,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"metadata":{"user_id":"u"},"output_config":{"level":1}}`, "INFO", `ignored_fields=output_config.level`},
		{"/v1/messages", `{` + user + `,"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}`, "WARN", `dropped="edit clear_tool_uses_20250919"`},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"server_tool_use","id":"1","name":"web_search"},{"type":"web_search_tool_result"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`, "WARN", `dropped="block server_tool_use, block web_search_tool_result"`},
		{"/v1/chat/completions", `{` + user + `,"store":false,"reasoning_format":"none","tool_resources":null}`, "INFO", `ignored_fields=reasoning_format`},
		{"/v1/completions", `{"prompt":"x","user":"u","draft":1,"a\nb":2}`, "INFO", `ignored_fields="a?b, draft"`},
		{"/api/chat", `{` + user + `,"keep_alive":0,"options":{"num_ctx":1,"penalize_newline":true}}`, "INFO", `ignored_fields=options.penalize_newline`},
		{"/api/generate", `{"prompt":"x","raw":true,"stream":false,"options":{"num_gpu":1}}`, "INFO", ""},
	} {
		log.Reset()
		w := call(h, "POST", tt.path, tt.body)
		require.Equal(t, 200, w.Code, "%s: %s", tt.body, w.Body)
		require.Contains(t, log.String(), "level="+tt.level, tt.body)
		if tt.says == "" {
			require.NotContains(t, log.String(), "ignored_fields", tt.body)
			require.NotContains(t, log.String(), "dropped", tt.body)
		} else {
			require.Contains(t, log.String(), tt.says, tt.body)
		}
	}
	types := make([]string, 1000)
	for i := range types {
		types[i] = strings.Repeat("é", 1000) + fmt.Sprint(i)
	}
	dropped := &dialect.Call{Dropped: types}
	require.Less(t, len(takeLeftOut(dropped).dropped), 2<<10, "it is kept as long as the answer takes")
	require.Nil(t, dropped.Dropped)
	log.Reset()
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, `,"f%d_%s":%d`, i, strings.Repeat("x", 1000), i)
	}
	require.Equal(t, 200, call(h, "POST", "/v1/messages", `{`+user+many.String()+`}`).Code)
	require.Contains(t, log.String(), "ignored_fields=")
	require.Less(t, log.Len(), 4<<10, "clients choose the names, so what is logged of them is bounded")
}

// Nothing that the true coding agents send is left out unseen: the fields of their
// recorded requests are used or harmless, and only tools of vendors' servers are dropped.
func TestAgentsLoseNothing(t *testing.T) {
	files, err := filepath.Glob("../tests/agents/testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		c, log := logging(answering("ok"))
		c.Model.ContextLength = 1 << 20
		h := New(c)
		requests := testenv.FromJSON[[]struct {
			Path string
			Body json.RawMessage
		}](t, testenv.ReadFile(t, file))
		require.NotEmpty(t, requests, file)
		for _, r := range requests {
			w := call(h, "POST", r.Path, string(r.Body))
			require.Equal(t, 200, w.Code, w.Body)
		}
		for line := range strings.Lines(log.String()) {
			require.NotContains(t, line, "ignored_fields=", file)
			if _, dropped, ok := strings.Cut(line, " dropped="); ok {
				require.Regexp(t, `^"(tool web_search|, )+"\n`, dropped, file)
			}
		}
	}
}
