package api

import (
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/api/dialect"
	"ringmaster/api/internal/openai"
	"ringmaster/distributed/accept"
)

// sendBuffer is the size of the kernel's send buffer of a connection. It bounds what a
// client that does not read can hold there, and it is small so that writePiece can tell a
// slow reader from one that stopped.
const sendBuffer = 64 << 10

// connections bounds the open connections of a server, in total and by address. A
// connection beyond a limit replaces one that has no request (idle, or its header is not
// complete); if every connection has a request, the new one is refused. So idle
// connections keep no client out, and running requests are never cut.
type connections struct {
	total, each int
	log         *slog.Logger

	mu      sync.Mutex // guards all below
	open    map[net.Conn]*connection
	from    map[string]int // open connections by address (accept.Origin)
	clock   uint64         // counter of changes
	refused uint64
	evicted uint64
	noted   time.Time // time of the last line in the log
	none    sync.Cond // signals that no connection has a request; uses mu
	busy    int       // connections with a request
}

// connection is the state of one connection.
type connection struct {
	origin string
	busy   bool   // its handler runs, or its response is not fully written
	since  uint64 // the clock at the last change of busy
}

func newConnections(total, each int, log *slog.Logger) *connections {
	t := &connections{total: total, each: each, log: log, open: map[net.Conn]*connection{}, from: map[string]int{}}
	t.none.L = &t.mu
	return t
}

// admit adds a connection, perhaps in place of another. It returns false if there is no
// place.
func (t *connections) admit(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	origin := accept.Origin(c.RemoteAddr())
	var free bool
	switch {
	case t.from[origin] >= t.each:
		free = t.evict(func(x *connection) bool { return x.origin == origin })
	case len(t.open) >= t.total:
		// Only an address with at least as many connections has to give one up.
		free = t.evict(func(x *connection) bool { return t.from[x.origin] >= t.from[origin] })
	default:
		free = true
	}
	if !free {
		t.refused++
		t.note("refused a connection because every allowed connection has a request; see --max-connections", "client", c.RemoteAddr(), "refusals", t.refused)
		return false
	}
	t.clock++
	t.open[c] = &connection{origin: origin, since: t.clock}
	t.from[origin]++
	return true
}

// evict closes a connection without a request among those that may allows: it takes the
// address that has the most, and of these connections the one that has waited longest. It
// returns false if there is none; mu is held.
func (t *connections) evict(may func(*connection) bool) bool {
	var worst net.Conn
	for c, x := range t.open {
		if x.busy || !may(x) {
			continue
		}
		if worst == nil {
			worst = c
			continue
		}
		w := t.open[worst]
		if n, m := t.from[x.origin], t.from[w.origin]; n > m || n == m && x.since < w.since {
			worst = c
		}
	}
	if worst == nil {
		return false
	}
	t.forget(worst)
	t.evicted++
	_ = worst.Close()
	return true
}

// room closes a connection without a request, if one exists, to free its file descriptor.
func (t *connections) room() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evict(func(*connection) bool { return true })
}

// begin records that a handler is about to run for the connection, and calls first before
// anything else can happen to it.
func (t *connections) begin(c net.Conn, first func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.open[c]; x != nil && !x.busy {
		t.clock++
		x.busy, x.since = true, t.clock
		t.busy++
	}
	first()
}

// end records that the connection's response is complete or cannot be sent; closed means
// that the connection has ended.
func (t *connections) end(c net.Conn, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.open[c]
	if x == nil {
		return
	}
	if x.busy {
		t.clock++
		x.busy, x.since = false, t.clock
		if t.busy--; t.busy == 0 {
			t.none.Broadcast()
		}
	}
	if closed {
		t.forget(c)
	}
}

// forget removes a connection without a request; mu is held.
func (t *connections) forget(c net.Conn) {
	origin := t.open[c].origin
	delete(t.open, c)
	if t.from[origin]--; t.from[origin] == 0 {
		delete(t.from, origin)
	}
}

// drain waits until no connection has a request, at most for atMost. It calls first for
// each connection that has one, and returns how many still have one.
func (t *connections) drain(first func(net.Conn), atMost time.Duration) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, x := range t.open {
		if x.busy {
			first(c)
		}
	}
	over := false
	timer := time.AfterFunc(atMost, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		over = true
		t.none.Broadcast()
	})
	defer timer.Stop()
	for t.busy > 0 && !over {
		t.none.Wait()
	}
	return t.busy
}

// notePause is the least time between two lines about connections in the log.
const notePause = 10 * time.Second

// note writes a line unless it wrote one within notePause, so that strangers cannot fill
// the log. mu is held.
func (t *connections) note(text string, args ...any) {
	if now := time.Now(); now.Sub(t.noted) >= notePause {
		t.noted = now
		t.log.Warn(text, args...)
	}
}

// collectors are the metrics of the connections.
func (t *connections) collectors() []prometheus.Collector {
	read := func(value func() float64) func() float64 {
		return func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return value()
		}
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringmaster_http_connections", Help: "Open connections."},
			read(func() float64 { return float64(len(t.open)) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_http_connections_refused_total", Help: "Connections refused because every allowed connection had a request."},
			read(func() float64 { return float64(t.refused) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_http_connections_evicted_total", Help: "Connections without a request that were closed to make room for others."},
			read(func() float64 { return float64(t.evicted) })),
	}
}

// Budget returns the budget of client connections.
func (s *Server) Budget() Budget {
	t := s.conns
	read := func(value func() float64) func() float64 {
		return func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return value()
		}
	}
	return Budget{
		Name: "connections of clients", Set: "`--max-connections`", Refusal: "one without a request is closed, or the new one gets 503 (with HTTPS only the end of the connection)",
		Limit: func() float64 { return float64(t.total) }, Used: read(func() float64 { return float64(len(t.open)) }),
		Refused: read(func() float64 { return float64(t.refused) }),
	}
}

// limitedListener accepts the connections that the limits allow and refuses the
// others.
type limitedListener struct {
	net.Listener
	conns    *connections
	refusing chan struct{} // one value for each connection that is being refused
	// encrypted connections are closed without a refusal: the client could not read one
	// without a handshake, and a refusal is not worth a handshake.
	encrypted bool
}

// mostRefusing is how many refused connections stay open for refuseTimeout, so that their
// clients can read why.
const mostRefusing = 8

// refuseTimeout is how long a refused connection stays open.
const refuseTimeout = 250 * time.Millisecond

// refusal is the whole response to a refused connection; it is sent before a request has
// been read.
var refusal = func() string {
	e := &Error{Status: 503, Code: "too_many_connections", Message: "The server has too many connections; try again later."}
	body := string(dialect.Marshal(openai.ErrorBody(e))) + "\n"
	return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\nRetry-After: 1\r\nConnection: close\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}()

// Accept returns the next connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := accept.Next(l.Listener, l.conns.room, func(err error) {
			l.conns.mu.Lock()
			defer l.conns.mu.Unlock()
			l.conns.note("cannot accept connections now; if file descriptors ran out, raise ulimit -n", "error", err)
		})
		if err != nil {
			return nil, err
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(sendBuffer) // at worst a slow client is cut off sooner
		}
		if l.conns.admit(c) {
			return c, nil
		}
		if l.encrypted {
			_ = c.Close()
			continue
		}
		select {
		case l.refusing <- struct{}{}:
			go func() {
				defer func() { <-l.refusing }()
				refuse(c)
			}()
		default:
			_ = c.Close()
		}
	}
}

// refuse sends the refusal and discards what the client sends meanwhile, because closing
// a connection with unread data resets it.
func refuse(c net.Conn) {
	defer c.Close()
	if c.SetDeadline(time.Now().Add(refuseTimeout)) != nil {
		return
	}
	if _, err := c.Write([]byte(refusal)); err != nil {
		return
	}
	half, ok := c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	buf := make([]byte, 4096)
	for n := 0; n < 1<<20; { // bounds what a client can make the server read
		m, err := c.Read(buf)
		if err != nil {
			return
		}
		n += m
	}
}
