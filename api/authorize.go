package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"ringmaster/api/keys"
)

// publicRoutes need no API key because they disclose nothing and cost nothing. /readyz
// gives its reason only to a request with a key.
var publicRoutes = []string{chatRoute, clusterRoute, filesRoute, iconRoute, "/healthz", "/readyz", "/health"}

// holderKey is the context key of the *keys.Holder of the request's API key.
const holderKey = "api.holder"

// authorize rejects requests without one of the API keys, and those beyond the limits of
// their key. Only POST counts as a request since the other methods cost nothing.
// Rendering has its own count.
func (s *server) authorize(c *gin.Context) {
	if s.Keys == nil || slices.Contains(publicRoutes, c.FullPath()) {
		return
	}
	header := authorization(c.Request)
	h := find(s.Keys, header)
	now := s.Clock.Now()
	switch {
	case h == nil && bearer(header) == "":
		s.unauthorized(c, "An API key is required: send it as \"Authorization: Bearer KEY\".")
		return
	case h == nil:
		s.unauthorized(c, "The API key is not valid.")
		return
	}
	c.Set(holderKey, h)
	if h.Expired(now) {
		s.unauthorized(c, "The API key has expired.")
		return
	}
	if c.Request.Method != http.MethodPost || c.FullPath() == renderRoute {
		return
	}
	if wait := h.Request(now); wait > 0 {
		s.fail(c, s.limited(fmt.Sprintf("%s requests", h.Requests), wait))
	}
}

// unauthorized responds with 401.
func (s *server) unauthorized(c *gin.Context, message string) {
	c.Header("WWW-Authenticate", "Bearer")
	s.fail(c, &Error{Status: http.StatusUnauthorized, Code: "invalid_api_key", Message: message})
}

// limited returns the error of a request beyond a limit of its key; wait is when the
// request is allowed again.
func (s *server) limited(limit string, wait time.Duration) *Error {
	s.metrics.limited.Inc()
	return &Error{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", RetryAfter: wait,
		Message: fmt.Sprintf("The limit of this API key, %s, is used up; try again in %s.", limit, max(wait, time.Second).Round(time.Second))}
}

// holder returns the holder of the request's API key, nil if none is required.
func holder(c *gin.Context) *keys.Holder {
	h, _ := c.Value(holderKey).(*keys.Holder)
	return h
}

// tokensLeft refuses a request if its key has no tokens left.
func (s *server) tokensLeft(c *gin.Context) *Error {
	h := holder(c)
	if h == nil {
		return nil
	}
	if wait := h.Wait(s.Clock.Now()); wait > 0 {
		return s.limited(fmt.Sprintf("%s tokens", h.Tokens), wait)
	}
	return nil
}

// use counts tokens against the limit of the request's key.
func (s *server) use(c *gin.Context, tokens int) {
	if h := holder(c); h != nil {
		h.Use(s.Clock.Now(), tokens)
	}
}

// authorization returns the Authorization header of a request, or the header that
// Anthropic's clients send in its place.
func authorization(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" && r.Header.Get("Authorization") == "" {
		return "Bearer " + key
	}
	return r.Header.Get("Authorization")
}

// bearer returns the key in an Authorization header, "" if there is none.
func bearer(authorization string) string {
	scheme, key, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// find returns the holder of the key in an Authorization header, nil if there is none.
func find(ring *keys.Ring, authorization string) *keys.Holder {
	return ring.Find(bearer(authorization))
}

// trusts reports whether a request may see what strangers may not: it has a key that is
// valid now, or none is required.
func trusts(ring *keys.Ring, r *http.Request, now time.Time) bool {
	if ring == nil {
		return true
	}
	h := find(ring, authorization(r))
	return h != nil && !h.Expired(now)
}

// scope returns the engine.Request.CacheScope of a request: its API key's hash, or "" for
// keys that share the prefix cache.
func (s *server) scope(c *gin.Context) string {
	if h := holder(c); h != nil && !h.Shared {
		return string(h.Hash[:])
	}
	return ""
}

// tenant returns the engine.Request.Tenant of a request: its API key's hash if several
// keys may exist.
func (s *server) tenant(c *gin.Context) string {
	if h := holder(c); h != nil && s.Keys.Several() {
		return string(h.Hash[:])
	}
	return ""
}

// weight is the engine.Request.Weight of a request.
func weight(c *gin.Context) int {
	if h := holder(c); h != nil {
		return h.Weight
	}
	return 0
}
