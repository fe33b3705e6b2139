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

// Main is the helper process. It serves its inherited sockets until they end, frees
// what it has made, and exits.
func Main() {
	code := 0
	// SIGPIPE is ignored because the server reads stderr: after the server has died, a
	// write to stderr must not end the helper before it has freed what it has made.
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
		return errors.New("started by hand; only the server starts this process")
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
		// Each request has its own goroutine, so that one that hangs in the driver
		// does not block the others.
		handlers.Go(func() { s.reply(m) })
	}
	if !s.holds() {
		return nil // nothing was made, so nothing must be freed
	}
	done := make(chan struct{})
	go func() { handlers.Wait(); close(done) }()
	timer := time.NewTimer(verbs.DefaultLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C: // shutdown names what hangs
	}
	return s.shutdown()
}

// reply answers a request. It ignores errors of sending, because the server is then
// gone.
func (s *server) reply(m *message) {
	r := s.handle(m)
	r.ID = m.ID
	_ = m.close()
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = send(s.conn, r)
}

// shutdown destroys the remaining objects in order. Each call is bounded.
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

// holds reports whether the helper may hold resources of a driver.
func (s *server) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opening
}

// stopLoop ends the loop, which then no longer posts or polls.
func (s *server) stopLoop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loop != nil {
		s.loop.stop()
	}
}

// context returns the open device, nil if none is open.
func (s *server) context() *verbs.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx
}
