package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// outcome is the context key of a status to log in place of the one sent.
const outcome = "api.outcome"

// observe gives the request an id, logs it and counts it. Prompts and answers
// are never logged.
func (s *server) observe(c *gin.Context) {
	id := "req_" + s.NewID()
	c.Header("X-Request-Id", id)
	start := s.Clock.Now()
	s.metrics.inFlight.Inc()
	defer func() {
		s.metrics.inFlight.Dec()
		status := c.Writer.Status()
		if v, ok := c.Get(outcome); ok {
			status = v.(int)
		}
		route := c.FullPath()
		if route == "" {
			route = "none" // a path chosen by the client must not become a label
		}
		took := s.Clock.Now().Sub(start)
		s.metrics.count(route, status, took)
		level := slog.LevelInfo
		switch {
		case status >= 500 && status != http.StatusNotImplemented:
			level = slog.LevelError
		case route == "/healthz" || route == "/readyz" || route == "/metrics":
			level = slog.LevelDebug
		}
		s.Log.LogAttrs(context.WithoutCancel(c.Request.Context()), level, "request",
			slog.String("id", id), slog.String("method", c.Request.Method), slog.String("route", route),
			slog.Int("status", status), slog.Int("bytes", max(0, c.Writer.Size())),
			slog.Duration("took", took), slog.String("client", c.Request.RemoteAddr))
	}()
	c.Next()
}

// recover turns a panic of a handler into a 500, or, if the response has begun,
// into a closed connection: the client must not mistake it for a complete one.
// Only a panic of the runtime is logged with its text; any other may quote what
// the client sent. The stack has no values of strings.
func (s *server) recover(c *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			panic(v)
		}
		s.Log.Error("handler panicked", "route", c.FullPath(), "panic", describePanic(v), "stack", string(debug.Stack()))
		c.Set(outcome, http.StatusInternalServerError)
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		s.fail(c, s.engineError(errors.New("panic")))
	}()
	c.Next()
}

// describePanic is a panic's value as far as it can be logged: its type, and the
// text of a runtime error, which holds indexes and types only.
func describePanic(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", v)
}

// LoopbackHosts returns the value of Config.Hosts for a server that listens on a
// loopback address: its usual names, and more.
func LoopbackHosts(more ...string) []string {
	return append([]string{"localhost", "127.0.0.1", "::1"}, more...)
}

// checkHost rejects requests whose Host header is not in Config.Hosts.
func (s *server) checkHost(c *gin.Context) {
	if hostAllowed(s.Hosts, c.Request.Host) {
		return
	}
	s.fail(c, errHost)
}

// errHost rejects a request by its Host header.
var errHost = &Error{Status: http.StatusForbidden, Code: "host_not_allowed",
	Message: "The Host header of the request is not allowed; add the name to the server's allowed hosts (--allow-host)."}

// hostAllowed reports whether a Host header, with or without a port, is one of
// the allowed names; nil allows any.
func hostAllowed(allowed []string, host string) bool {
	if allowed == nil {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	return slices.ContainsFunc(allowed, func(h string) bool { return strings.EqualFold(h, host) })
}

// cors sets the CORS headers for the allowed origins and answers preflights.
func (s *server) cors(c *gin.Context) {
	origin := c.GetHeader("Origin")
	if len(s.CORSOrigins) == 0 {
		return
	}
	h := c.Writer.Header()
	h.Add("Vary", "Origin")
	if origin == "" || !slices.Contains(s.CORSOrigins, "*") && !slices.Contains(s.CORSOrigins, origin) {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	if c.Request.Method == http.MethodOptions && c.GetHeader("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers", c.GetHeader("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
		c.AbortWithStatus(http.StatusNoContent)
	}
}

// publicRoutes need no API key: they disclose nothing and cost nothing. /readyz
// gives its reason only to a request with a key.
var publicRoutes = []string{"/", "/healthz", "/readyz"}

// authorize rejects requests without one of the API keys.
func (s *server) authorize(c *gin.Context) {
	if !s.keys.required || slices.Contains(publicRoutes, c.FullPath()) {
		return
	}
	header := authorization(c.Request)
	if scope, ok := s.keys.find(header); ok {
		c.Set(keyHash, scope)
		return
	}
	message := "The API key is not valid."
	if _, key, _ := strings.Cut(header, " "); key == "" {
		message = "An API key is required: send it as \"Authorization: Bearer KEY\"."
	}
	c.Header("WWW-Authenticate", "Bearer")
	s.fail(c, &Error{Status: http.StatusUnauthorized, Code: "invalid_api_key", Message: message})
}

// authorization is the Authorization header of a request, or what Anthropic's
// clients send in its place.
func authorization(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" && r.Header.Get("Authorization") == "" {
		return "Bearer " + key
	}
	return r.Header.Get("Authorization")
}

// keyring holds the API keys as hashes: all have the same length, so comparing
// them takes constant time.
type keyring struct {
	required bool       // else every request is accepted
	hashes   [][32]byte // of different keys
}

func newKeyring(keys []string) keyring {
	k := keyring{required: len(keys) > 0}
	for _, key := range keys {
		h := sha256.Sum256([]byte(key))
		if key != "" && !slices.Contains(k.hashes, h) { // an empty key would match a request without one
			k.hashes = append(k.hashes, h)
		}
	}
	return k
}

// keyHash is the context key of what stands for the request's API key in the
// engine.
const keyHash = "api.keyHash"

// scope is the engine.Request.CacheScope of a request: its API key's hash.
func (s *server) scope(c *gin.Context) string {
	if s.ShareCache {
		return ""
	}
	return c.GetString(keyHash)
}

// tenant is the engine.Request.Tenant of a request: its API key's hash if there are
// several keys.
func (s *server) tenant(c *gin.Context) string {
	if len(s.keys.hashes) < 2 {
		return ""
	}
	return c.GetString(keyHash)
}

// Tenant is the engine.Request.Tenant of requests with an API key, if there are
// several keys: the key's hash.
func Tenant(key string) string {
	h := sha256.Sum256([]byte(key))
	return string(h[:])
}

// accept reports whether an Authorization header carries one of the keys, or
// none is required.
func (k keyring) accept(authorization string) bool {
	_, ok := k.find(authorization)
	return ok
}

// find is accept, and returns the hash of the key in the header.
func (k keyring) find(authorization string) (hash string, ok bool) {
	if !k.required {
		return "", true
	}
	scheme, key, _ := strings.Cut(authorization, " ")
	given := sha256.Sum256([]byte(strings.TrimSpace(key)))
	match := 0
	for i := range k.hashes { // compare all of them, so that timing reveals nothing
		match |= subtle.ConstantTimeCompare(given[:], k.hashes[i][:])
	}
	return string(given[:]), match == 1 && strings.EqualFold(scheme, "Bearer")
}
