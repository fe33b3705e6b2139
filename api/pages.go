package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"ringmaster/api/dialect"
	"ringmaster/api/keys"
	"ringmaster/api/web"
)

// statusWait bounds how long the state of the ranks may take.
const statusWait = time.Second

const (
	// maxRenders limits how many Markdown texts are rendered at the same time, because
	// streams need the processors too.
	maxRenders = 2
	// waitingRenders is how many more may wait, each for renderWait at most.
	waitingRenders = 64
	renderWait     = 2 * time.Second
)

// The routes of the pages and of the files that they load. They need no key because every
// client gets the same files.
const (
	chatRoute    = "/"
	clusterRoute = "/cluster"
	filesRoute   = "/web/:file"
	iconRoute    = "/favicon.ico"
)

// statusRoute returns the state of the ranks.
const statusRoute = "/cluster/status"

// historyRoute returns what the server did in the last hour.
const historyRoute = "/cluster/history"

// renderRoute renders Markdown. It counts bytes, not requests of the key
// (keys.RenderBytes), because one answer takes many calls.
const renderRoute = "/web/markdown"

// pageCalls are the routes that an open page calls again and again.
var pageCalls = []string{statusRoute, historyRoute, renderRoute}

// pageRoutes registers the pages.
func (s *server) pageRoutes(r *gin.Engine) {
	for route, name := range map[string]string{chatRoute: web.Chat, clusterRoute: web.Cluster, iconRoute: "icon.svg", filesRoute: ""} {
		handler := func(c *gin.Context) { s.page(c, name) }
		r.GET(route, handler)
		r.HEAD(route, handler)
	}
	r.POST(renderRoute, s.render)
	r.GET(statusRoute, s.clusterStatus)
	r.GET(historyRoute, s.clusterHistory)
}

// page answers with a file of the pages, by default the one that the path names.
func (s *server) page(c *gin.Context, name string) {
	name = cmp.Or(name, c.Param("file"))
	if !web.File(c.Writer, c.Request, name) {
		s.fail(c, &Error{Status: http.StatusNotFound, Code: "unknown_url", Message: "The pages have no file of this name."})
	}
}

// render turns {"text": …, "partial": …} into a web.Rendered.
func (s *server) render(c *gin.Context) {
	if c.Request.ContentLength > 8*web.MaxMarkdown { // as JSON, escaped
		c.Header("Connection", "close") // the body stays unread
		s.fail(c, &Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large", Message: "The text is too long to be rendered."})
		return
	}
	f, failed := s.readBody(c)
	if failed != nil {
		s.fail(c, failed)
		return
	}
	defer f.release()
	text, partial := f.String("text", ""), f.Bool("partial", false)
	if f.Err != nil {
		s.fail(c, f.Err)
		return
	}
	if h := holder(c); h != nil && len(text) <= web.MaxMarkdown {
		if wait := h.Render(s.Clock.Now(), len(text)); wait > 0 {
			s.fail(c, s.limited(fmt.Sprintf("%s requests with %d bytes of Markdown for each", h.Requests, keys.RenderBytes), wait))
			return
		}
	}
	leave := s.renderPlace(f.Ctx)
	switch {
	case leave == nil && f.Ctx.Err() != nil:
		s.failRun(c, nil, context.Cause(f.Ctx))
		return
	case leave == nil:
		s.fail(c, &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: s.RetryAfter,
			Message: "Too many texts are being rendered; try again later."})
		return
	}
	defer leave()
	out, err := web.Render(f.Ctx, text, partial)
	switch {
	case err != nil && f.Ctx.Err() != nil:
		s.failRun(c, nil, context.Cause(f.Ctx))
		return
	case err != nil:
		s.fail(c, dialect.Invalid("text", "invalid_value", "'text' cannot be rendered: %v.", err))
		return
	}
	c.Header("Cache-Control", "no-store")
	s.writeJSON(c, http.StatusOK, out)
}

// renderPlace waits for a place to render a text, and returns a function that gives it
// back; nil if no place became free in time.
func (s *server) renderPlace(ctx context.Context) (leave func()) {
	if !s.renders.take() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, renderWait)
	defer cancel()
	select {
	case s.rendering <- struct{}{}:
		return func() { <-s.rendering; s.renders.leave() }
	case <-ctx.Done():
		s.renders.leave()
		return nil
	}
}

// clusterStatus returns the state of the ranks and of the engine.
func (s *server) clusterStatus(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), statusWait)
	defer cancel()
	out := web.Status{Phase: "running", Ranks: []web.Rank{}, Events: []web.Event{}}
	if s.Cluster != nil {
		out = s.Cluster.Status(ctx)
	}
	if err := s.Engine.Ready(); err != nil && out.Reason == "" {
		out.Reason = err.Error()
	}
	e := s.Engine.Stats()
	out.Now, out.Model = s.Clock.Now(), s.Model.ID
	out.Engine = &web.Engine{
		Queued: e.Queued, MaxQueued: e.MaxQueued, Active: e.Active, MaxActive: e.MaxActive, CacheEntries: e.CacheEntries, MaxCacheEntries: e.MaxCacheEntries,
		Prefilled: e.PrefillTokens, Cached: e.CachedTokens, Generated: e.Tokens, Steps: e.Steps, DecodeRows: e.DecodeRows, Memory: e.Memory, MemoryBudget: e.MemoryBudget,
	}
	c.Header("Cache-Control", "no-store")
	s.writeJSON(c, http.StatusOK, out)
}

// clusterHistory returns the samples of the last hour, the oldest first.
func (s *server) clusterHistory(c *gin.Context) {
	out := []web.Sample{}
	if s.History != nil {
		out = append(out, s.History.Samples()...)
	}
	c.Header("Cache-Control", "no-store")
	s.writeJSON(c, http.StatusOK, gin.H{"samples": out})
}

// startingPages serves the pages while there is no engine; status may be nil.
func startingPages(mux *http.ServeMux, status web.Source, trusted func(*http.Request) bool) {
	file := func(w http.ResponseWriter, r *http.Request, name string) {
		if !web.File(w, r, name) {
			http.NotFound(w, r)
		}
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { file(w, r, web.Chat) })
	mux.HandleFunc("GET /cluster", func(w http.ResponseWriter, r *http.Request) { file(w, r, web.Cluster) })
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, r *http.Request) { file(w, r, "icon.svg") })
	mux.HandleFunc("GET /web/{file}", func(w http.ResponseWriter, r *http.Request) { file(w, r, strings.TrimPrefix(r.URL.Path, "/web/")) })
	if status == nil {
		return
	}
	mux.HandleFunc("GET "+statusRoute, func(w http.ResponseWriter, r *http.Request) {
		if !trusted(r) {
			no := &Error{Status: http.StatusUnauthorized, Code: "invalid_api_key", Message: "An API key is required: send it as \"Authorization: Bearer KEY\"."}
			w.Header().Set("WWW-Authenticate", "Bearer")
			writePlain(w, no.Status, errorsOf(r).Body(no))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), statusWait)
		defer cancel()
		out := status.Status(ctx)
		out.Now = time.Now()
		w.Header().Set("Cache-Control", "no-store")
		writePlain(w, http.StatusOK, out)
	})
}
