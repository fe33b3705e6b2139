package api

import (
	"net/http"
	"time"
)

// Starting is the handler to use until there is an engine, while the model loads
// or other hosts have yet to join: /healthz works as usual, everything else is a
// 503 with the reason. reason is called for each request.
func Starting(reason func() string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writePlain(w, http.StatusOK, health{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		writePlain(w, http.StatusServiceUnavailable, health{Status: "not ready", Reason: reason()})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		no := &Error{Status: http.StatusServiceUnavailable, Code: "starting", Message: "The server is starting: " + reason() + "."}
		w.Header().Set("Retry-After", "1")
		writePlain(w, no.Status, no.object())
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limitBody(w, r, startingBodyTimeout)
		mux.ServeHTTP(w, r)
	})
}

// startingBodyTimeout is the body timeout of requests to Starting, which does not
// read bodies.
const startingBodyTimeout = 10 * time.Second

// writePlain is writeJSON for a handler outside gin.
func writePlain(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(append(encode(v), '\n')) // an error means the client has disconnected
}
