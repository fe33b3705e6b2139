package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"ringmaster/api/dialect"
	"ringmaster/api/internal/openai"
	"ringmaster/internal/program"
)

// aliases are the paths of clients that have a base address without /v1, or with a part
// too many.
var aliases = func() map[string]string {
	out := map[string]string{}
	for _, path := range []string{"/chat/completions", "/responses", "/messages", "/messages/count_tokens", "/models", "/embeddings"} {
		out[path] = "/v1" + path
	}
	return out
}()

// tidyPath returns the path that a client means: empty segments and a slash at the end are
// left out, a doubled /v1 is one, /v1 before Ollama's paths and /api before OpenAI's are
// none. Names of models may have any path.
func tidyPath(path string) string {
	for strings.Contains(path, "//") && !strings.HasPrefix(path, "/v1/models/") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	for strings.HasPrefix(path, "/v1/v1/") || strings.HasPrefix(path, "/v1/api/") || strings.HasPrefix(path, "/api/v1/") {
		path = path[strings.IndexByte(path[1:], '/')+1:] // one part at a time: the rest of /api/v1/ is a path
	}
	if len(path) > 1 && !strings.HasPrefix(path, "/v1/models/") {
		path = strings.TrimSuffix(path, "/")
	}
	if path == "/v1/models/" {
		return "/v1/models"
	}
	if alias := aliases[path]; alias != "" {
		return alias
	}
	return path
}

// tidied serves the path that a client means.
func tidied(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := tidyPath(r.URL.Path); path != r.URL.Path {
			r2, u := *r, *r.URL
			u.Path, u.RawPath = path, ""
			r2.URL = &u
			r = &r2
		}
		h.ServeHTTP(w, r)
	})
}

// foreign are paths of other servers, with what to use in their place.
var foreign = map[string]string{
	"/completion": "use /v1/completions", "/completions": "use /v1/completions", "/infill": "the model cannot fill in; use /v1/completions", "/apply-template": "use /v1/chat/completions, which applies the model's template",
	"/slots": "the state is in /metrics and /cluster/status", "/generate": "use /v1/completions, or Ollama's /api/generate", "/v1/complete": "use /v1/messages", "/v1/rerank": "the model ranks nothing", "/rerank": "the model ranks nothing",
	"/v1/moderations": "the model classifies nothing", "/v1/audio/speech": "only text is supported", "/v1/audio/transcriptions": "only text is supported", "/v1/images/generations": "only text is supported",
	"/v1/files": "the server keeps no files", "/v1/batches": "send the requests one by one; the server batches them", "/v1/assistants": "use /v1/responses", "/v1/threads": "use /v1/responses", "/v1/realtime": "use /v1/responses with \"stream\": true",
}

// unknown answers a request to a path that the server does not have.
func (s *server) unknown(c *gin.Context) {
	path := c.Request.URL.Path
	hint := foreign[path]
	if hint == "" {
		hint = "the API is at /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/models and /api/chat"
	}
	s.fail(c, &Error{Status: http.StatusNotFound, Code: "unknown_url", Message: fmt.Sprintf("Unknown URL: %s %s; %s.", c.Request.Method, path, hint)})
}

// plainRoutes adds the routes of other servers that clients ask before anything else.
func (s *server) plainRoutes(r *gin.Engine) {
	r.GET("/health", s.health)
	r.HEAD("/health", s.health)
	r.GET("/version", func(c *gin.Context) {
		s.writeJSON(c, http.StatusOK, struct {
			Version string `json:"version"`
		}{program.Version()})
	})
	r.GET("/props", func(c *gin.Context) { s.writeJSON(c, http.StatusOK, openai.Props(s.service, program.Version())) })
	r.POST("/v1/embeddings", func(c *gin.Context) { s.fail(c, noEmbeddings) })
}

// noEmbeddings answers every request for embeddings.
var noEmbeddings = dialect.Invalid("model", "unsupported_model", "The model computes no embeddings: it generates text. Use a server with an embedding model.")
