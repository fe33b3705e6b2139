package api

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// MaxModelLen is the context length in tokens, under vLLM's name for it.
	MaxModelLen int `json:"max_model_len,omitempty"`
}

func (s *server) modelObject() modelObject {
	m := modelObject{ID: s.Model.ID, Object: "model", OwnedBy: s.Model.OwnedBy, MaxModelLen: s.Model.ContextLength}
	if !s.Model.Created.IsZero() {
		m.Created = s.Model.Created.Unix()
	}
	return m
}

func (s *server) listModels(c *gin.Context) {
	s.writeJSON(c, http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{s.modelObject()}})
}

// getModel also accepts names that contain slashes.
func (s *server) getModel(c *gin.Context) {
	id := strings.TrimPrefix(c.Param("id"), "/")
	if !s.serves(id) {
		s.fail(c, modelNotFound(id, s.Model.ID))
		return
	}
	s.writeJSON(c, http.StatusOK, s.modelObject())
}
