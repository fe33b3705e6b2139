package api

import (
	"net/http"
	"time"

	"ringmaster/api/dialect"
	"ringmaster/api/keys"
	"ringmaster/api/web"
)

// Starting returns the handler to use until there is an engine, while the model loads or
// other hosts have yet to join. /healthz and the pages work as usual (the cluster page
// only if status is not nil); everything else is a 503 with the reason. reason is called
// for each request. ring and hosts are Config.Keys and Config.Hosts: a request without a
// key does not get the reason, because that may name other hosts, and a request with
// another Host is refused.
func Starting(reason func() string, status web.Source, ring *keys.Ring, hosts []string) http.Handler {
	mux := http.NewServeMux()
	startingPages(mux, status, func(r *http.Request) bool { return trusts(ring, r, time.Now()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writePlain(w, http.StatusOK, health{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		no := health{Status: "not ready"}
		if trusts(ring, r, time.Now()) {
			no.Reason = reason()
		}
		writePlain(w, http.StatusServiceUnavailable, no)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		no := &Error{Status: http.StatusServiceUnavailable, Code: "starting", Message: "The server is starting."}
		if trusts(ring, r, time.Now()) {
			no.Message = "The server is starting: " + reason() + "."
		}
		w.Header().Set("Retry-After", "1")
		writePlain(w, errorsOf(r).StatusOf(no), errorsOf(r).Body(no))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endAfter(w, r)
		limitBody(w, r, unreadBodyTimeout)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(startingTimeout))
		if !hostAllowed(hosts, r.Host) {
			writePlain(w, errorsOf(r).StatusOf(errHost), errorsOf(r).Body(errHost))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// startingTimeout bounds the writing of an answer of Starting.
const startingTimeout = 10 * time.Second

// writePlain is writeJSON for a handler outside gin.
func writePlain(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(append(dialect.Marshal(v), '\n')) // an error means the client has disconnected
}
