package api

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"ringmaster/api/internal/openai"
)

func (s *server) listModels(c *gin.Context) {
	s.writeJSON(c, http.StatusOK, openai.Models(s.service))
}

// getModel also accepts names that contain slashes.
func (s *server) getModel(c *gin.Context) {
	id := strings.TrimPrefix(c.Param("id"), "/")
	if !s.service.Serves(id) {
		s.fail(c, s.service.NoModel(id))
		return
	}
	s.writeJSON(c, http.StatusOK, openai.Model(s.service, id))
}
