package api

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

type health struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// healthz is the liveness probe: it shows only that the process responds.
func (s *server) healthz(c *gin.Context) {
	s.writeJSON(c, http.StatusOK, health{Status: "ok"})
}

// health is readyz for clients of llama-server and vLLM, which expect "ok".
func (s *server) health(c *gin.Context) {
	if s.Engine.Ready() != nil {
		s.writeJSON(c, http.StatusServiceUnavailable, health{Status: "not ready"})
		return
	}
	s.writeJSON(c, http.StatusOK, health{Status: "ok"})
}

// readyz is the readiness probe: it reports whether the engine can produce tokens now.
// The reason may name hosts and their addresses, so a request without a required API key
// does not get it.
func (s *server) readyz(c *gin.Context) {
	if err := s.Engine.Ready(); err != nil {
		no := health{Status: "not ready"}
		if trusts(s.Keys, c.Request, s.Clock.Now()) {
			no.Reason = err.Error()
		}
		s.writeJSON(c, http.StatusServiceUnavailable, no)
		return
	}
	s.writeJSON(c, http.StatusOK, health{Status: "ready"})
}
