package api

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

type health struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// healthz says that the process answers, nothing more.
func (s *server) healthz(c *gin.Context) {
	s.writeJSON(c, http.StatusOK, health{Status: "ok"})
}

// readyz says whether a token could be produced now.
func (s *server) readyz(c *gin.Context) {
	if err := s.Engine.Ready(); err != nil {
		s.writeJSON(c, http.StatusServiceUnavailable, health{Status: "not ready", Reason: err.Error()})
		return
	}
	s.writeJSON(c, http.StatusOK, health{Status: "ready"})
}
