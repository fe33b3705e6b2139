package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// Paths of clients whose base address has a part too few or too many lead where they
// mean; others get a hint.
func TestPaths(t *testing.T) {
	c := testConfig(answering("ok"))
	c.StrictModelNames = false
	h := New(c)
	body := `{` + user + `,"max_tokens":5,"stream":false}`
	for _, path := range []string{
		"/v1/chat/completions", "/chat/completions", "/v1//chat/completions", "//v1/chat//completions", "/v1/v1/chat/completions", "/v1/chat/completions/", "/api/v1/chat/completions",
		"/v1/messages", "/v1/v1/messages", "/messages", "/v1/messages/count_tokens/", "/api/chat", "/v1/api/chat", "//api/chat",
	} {
		w := call(h, "POST", path, body)
		require.Equal(t, 200, w.Code, "%s: %s", path, w.Body)
	}
	for _, path := range []string{"/responses", "/api/v1/responses", "/v1/api/v1/responses"} {
		require.Equal(t, 200, call(h, "POST", path, `{"input":"x"}`).Code, path)
	}
	for _, path := range []string{"/v1/completions", "/api/v1/completions", "/v1/api/v1/completions", "/v1/v1/completions", "/api/v1/v1//completions/", "/api/v1/api/generate"} {
		require.Equal(t, 200, call(h, "POST", path, `{"prompt":"x","stream":false}`).Code, path)
	}
	for _, path := range []string{"/v1/models", "/models", "/v1/models/", "/v1//models", "/v1/models/tiny", "/api/v1/models/tiny", "/v1/api/v1/models/tiny", "/api/v1/models", "/v1/api/tags"} {
		require.Equal(t, 200, call(h, "GET", path, "").Code, path)
	}
	w := call(h, "POST", "/v1//messages", `{}`)
	require.Contains(t, w.Body.String(), `"type":"error"`, "errors have the form of the path that was meant")
	for path, hint := range map[string]string{"/completion": "/v1/completions", "/slots": "/metrics", "/v1/nothing": "/v1/chat/completions", "/v1/files": "no files"} {
		w := call(h, "POST", path, body)
		require.Equal(t, 404, w.Code)
		require.Contains(t, errorOf(t, w).Message, hint, path)
	}
}

// What clients of other servers ask first is answered.
func TestOtherServersQuestions(t *testing.T) {
	e := answering("ok")
	c := testConfig(e)
	c.APIKeys = []string{"key"}
	h := New(c)
	w := call(h, "GET", "/health", "")
	require.Equal(t, 200, w.Code)
	require.JSONEq(t, `{"status":"ok"}`, w.Body.String())
	e.ready = errRank1
	w = call(h, "GET", "/health", "")
	require.Equal(t, 503, w.Code)
	require.NotContains(t, w.Body.String(), "rank", "it needs no key, so it names no host")
	require.Equal(t, 401, call(h, "GET", "/props", "").Code)
	props := testenv.FromJSON[struct {
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Alias string `json:"model_alias"`
	}](t, call(h, "GET", "/props", "", "Authorization", "Bearer key").Body.Bytes())
	require.Equal(t, 4096, props.Settings.Context)
	require.Equal(t, "tiny", props.Alias)
	require.Contains(t, call(h, "GET", "/version", "", "Authorization", "Bearer key").Body.String(), `"version":"`)
	for _, path := range []string{"/v1/embeddings", "/embeddings", "/api/embed", "/api/embeddings"} {
		w := call(h, "POST", path, `{"input":"x"}`, "Authorization", "Bearer key")
		require.Equal(t, 400, w.Code)
		require.True(t, strings.Contains(w.Body.String(), "computes no embeddings"), w.Body.String())
	}
}
