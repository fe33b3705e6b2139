package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
)

// usedKey is the context key of the *used of a request.
const usedKey = "api.used"

// used counts the tokens of a request.
type used struct{ prompt, cached, completion int }

// audit writes the request's line in the audit log and returns the same attributes for
// the request's line in the server log. Neither contains prompts or answers. The model's
// name is the server's, because a request may have any text in its place.
func (s *server) audit(c *gin.Context, id, route string, status int, took time.Duration) slog.Attr {
	var who, what []any
	if client := clientID(c.Request.Header); client != "" {
		what = append(what, slog.String("client_request_id", client))
	}
	if h := holder(c); h != nil {
		who = append(who, slog.String("key", h.Name))
	}
	if u, ok := c.Value(usedKey).(*used); ok {
		what = append(what, slog.String("model", s.Model.ID), slog.Int("prompt_tokens", u.prompt), slog.Int("cached_tokens", u.cached), slog.Int("completion_tokens", u.completion))
	}
	if s.Audit != nil && (!slices.Contains(publicRoutes, route) && !slices.Contains(pageCalls, route) || status == http.StatusUnauthorized) {
		who := who
		if len(who) == 0 {
			who = []any{slog.String("key", "")}
		}
		s.Audit.LogAttrs(context.WithoutCancel(c.Request.Context()), slog.LevelInfo, "used",
			slog.String("id", id), slog.Group("", who...), slog.String("method", loggedMethod(c.Request)), slog.String("route", route), slog.Int("status", status),
			slog.Group("", what...), slog.Float64("seconds", took.Seconds()), slog.String("client", c.Request.RemoteAddr))
	}
	return slog.Group("", append(who, what...)...)
}
