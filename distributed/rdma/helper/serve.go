//go:build cgo && (linux || darwin)

package helper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/safetext"
)

// Main is the helper process: it serves the sockets that it was given until they
// end, gives back what it has made, and exits.
func Main() {
	code := 0
	// The server reads stderr: once it has died, a write there must not end the helper
	// before it has given back what it has made.
	signal.Ignore(syscall.SIGPIPE)
	if err := errors.Join(plainEnd(), serve(os.NewFile(3, "helper"), os.NewFile(4, "bell"))); err != nil {
		fmt.Fprintln(safetext.NewWriter(os.Stderr), "ringmaster: the helper process of verbs:", err)
		code = 1
	}
	os.Exit(code)
}

// server is the state of a helper.
type server struct {
	conn *net.UnixConn
	bell *os.File

	writing sync.Mutex
	mu      sync.Mutex
	lib     *verbs.Library
	ctx     *verbs.Context
	loop    *loop
	next    uint32
	bells   mapping        // memory of the bell
	opening bool           // a device is, or is being, opened
	objects map[uint32]any // *verbs.PD, *servedMR, *servedCQ, *servedQP
}

// serve works until the connection ends or a signal asks it to.
func serve(conn, bell *os.File) error {
	c, err := net.FileConn(conn)
	if err != nil {
		return err
	}
	_ = conn.Close() // FileConn has duplicated it
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("started by hand: it is started by a server that is told to, and by nothing else")
	}
	s := &server{conn: u, bell: bell, objects: map[uint32]any{}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		<-signals
		_ = u.Close() // wakes receive
	}()
	var handlers sync.WaitGroup
	for {
		m, err := receive(u)
		if err != nil {
			break
		}
		// Each on its own: one that hangs in the driver holds up no other.
		handlers.Go(func() { s.reply(m) })
	}
	if !s.holds() {
		return nil // a library that hangs in its own start has nothing to give back
	}
	done := make(chan struct{})
	go func() { handlers.Wait(); close(done) }()
	timer := time.NewTimer(verbs.DefaultLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C: // what hangs is named by shutdown
	}
	return s.shutdown()
}

// reply answers a request. A server that is gone cannot be told.
func (s *server) reply(m *message) {
	r := s.handle(m)
	r.ID = m.ID
	_ = m.close()
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = send(s.conn, r)
}

// shutdown destroys what is left, in order. Each call is bounded.
func (s *server) shutdown() error {
	s.stopLoop()
	var errs []error
	if ctx := s.context(); ctx != nil {
		errs = append(errs, ctx.Close())
	}
	if s.lib != nil && errors.Join(errs...) == nil {
		errs = append(errs, s.lib.Close())
	}
	return errors.Join(errs...)
}

// holds reports whether there may be something of a driver to give back.
func (s *server) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opening
}

// stopLoop ends the loop: nothing is posted or polled any more.
func (s *server) stopLoop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loop != nil {
		s.loop.stop()
	}
}

// context is the open device, nil if there is none.
func (s *server) context() *verbs.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx
}
