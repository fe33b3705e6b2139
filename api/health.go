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

// readyz is the readiness probe: whether the engine can produce tokens now.
func (s *server) readyz(c *gin.Context) {
	if err := s.Engine.Ready(); err != nil {
		s.writeJSON(c, http.StatusServiceUnavailable, health{Status: "not ready", Reason: err.Error()})
		return
	}
	s.writeJSON(c, http.StatusOK, health{Status: "ready"})
}
