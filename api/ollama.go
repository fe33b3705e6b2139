package api

import (
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"ringmaster/api/dialect"
	"ringmaster/api/internal/ollama"
)

// ollamaRoutes adds Ollama's API.
func (s *server) ollamaRoutes(r *gin.Engine) {
	r.POST("/api/chat", s.generate(ollama.Chat))
	r.POST("/api/generate", s.generate(ollama.Generate))
	r.POST("/api/show", s.describe(ollama.Show))
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r.Handle(method, "/api/tags", s.tell(ollama.Tags))
		r.Handle(method, "/api/version", s.tell(ollama.VersionInfo))
	}
	r.GET("/api/ps", s.tell(ollama.Running))
	for _, path := range []string{"/api/embed", "/api/embeddings"} {
		r.POST(path, func(c *gin.Context) { s.fail(c, noEmbeddings) })
	}
	for _, no := range []struct{ method, path, what string }{
		{http.MethodPost, "/api/pull", "fetches no models while it runs; use 'ringmaster pull', then start it with the file"},
		{http.MethodPost, "/api/push", "publishes no models"},
		{http.MethodPost, "/api/create", "makes no models; start it with the model to serve"},
		{http.MethodPost, "/api/copy", "has one model; give it further names with --model-name"},
		{http.MethodDelete, "/api/delete", "deletes no models"},
		{http.MethodHead, "/api/blobs/:digest", "stores no files"},
		{http.MethodPost, "/api/blobs/:digest", "stores no files"},
	} {
		r.Handle(no.method, no.path, func(c *gin.Context) {
			s.fail(c, &Error{Status: http.StatusNotImplemented, Code: "not_implemented",
				Message: fmt.Sprintf("%s is not supported: this server %s.", no.path, no.what)})
		})
	}
}

// tell handles an endpoint that describes the server.
func (s *server) tell(answer func(*dialect.Service) any) gin.HandlerFunc {
	return func(c *gin.Context) { s.writeJSON(c, http.StatusOK, answer(s.service)) }
}

// describe handles an endpoint that describes what a body names.
func (s *server) describe(answer func(*dialect.Service, *dialect.Fields) (any, *Error)) gin.HandlerFunc {
	return s.withBody(func(c *gin.Context, f *body) {
		v, failed := answer(s.service, f.Fields)
		if failed != nil {
			s.fail(c, failed)
			return
		}
		s.writeJSON(c, http.StatusOK, v)
	})
}
