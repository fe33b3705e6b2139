package api

import (
	"net/http"
	"time"
)

// Starting answers while there is no engine yet, because the model loads or
// other machines are waited for: /healthz as ever, everything else 503 with the
// reason, which is asked for each time.
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

// startingBodyTimeout is how long the body of a request may take that nobody will
// read.
const startingBodyTimeout = 10 * time.Second

// writePlain answers with JSON outside of gin.
func writePlain(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(append(encode(v), '\n')) // a client that is gone needs no answer
}
