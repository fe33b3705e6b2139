package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"ringmaster/api/dialect"
)

// usedKey is the context key of the *used of a request.
const usedKey = "api.used"

// used counts the tokens of a request.
type used struct{ prompt, cached, completion int }

// leftOutKey is the context key of the *leftOut of a request.
const leftOutKey = "api.left_out"

// leftOut is what an answer does not take into account: tools and items that the model
// does not see, and fields that the server does not know. Both are as they are logged.
type leftOut struct{ dropped, ignored string }

// maxDropped bounds what a log line says about dropped tools and items, because clients
// choose their types.
const maxDropped = 16

// takeLeftOut moves what a call leaves out to where it is bounded: the request outlives
// its body's share of the budget, and the names are the client's.
func takeLeftOut(call *dialect.Call) *leftOut {
	names := slices.Compact(slices.Sorted(slices.Values(call.Dropped)))
	more := len(names) - maxDropped
	names = names[:min(len(names), maxDropped)]
	for i, name := range names {
		names[i] = dialect.Printable(name)
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	l := &leftOut{strings.Join(names, ", "), strings.Join(call.Ignored, ", ")}
	call.Dropped, call.Ignored = nil, nil
	return l
}

// logged returns the attributes of a request's log line, and the level that it has at
// least.
func (l *leftOut) logged() (attr slog.Attr, least slog.Level) {
	var list []any
	least = slog.LevelDebug
	if l.dropped != "" {
		least = slog.LevelWarn
		list = append(list, slog.String("dropped", l.dropped))
	}
	if l.ignored != "" {
		list = append(list, slog.String("ignored_fields", l.ignored))
	}
	return slog.Group("", list...), least
}

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
