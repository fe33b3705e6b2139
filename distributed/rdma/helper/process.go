//go:build cgo && (linux || darwin)

package helper

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/safetext"
)

// endedWait is how long the server waits for the end of a helper after its socket has
// closed, to learn what ended it. It is long because a system may first write its crash
// report.
const endedWait = time.Second

// stderrWait is how long stderr is read after a helper has ended. It is bounded because a
// process that its library started may keep stderr open.
const stderrWait = endedWait / 4

// endLimit is how long end waits for the end of a helper. verbs.DefaultLimit bounds what
// the helper is still doing and each of its calls that free what it has made.
const endLimit = 3 * verbs.DefaultLimit

// process is a helper as the server sees it.
type process struct {
	conn    *net.UnixConn
	bell    *os.File // a byte on it wakes the helper's loop
	pid     int
	started *os.Process

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan *message
	closing bool   // the server has asked it to end
	device  string // the device that it has opened
	opened  bool   // it may hold a device: see end
	onLost  func() // called at once when the helper is lost

	writing sync.Mutex
	gone    chan struct{} // closed when no more replies can arrive
	ended   chan struct{} // closed when the process has been waited for
	lost    chan struct{} // closed after gone, with err set, if its end was unexpected
	watched chan struct{} // closed when it is known whether its end was expected
	state   *os.ProcessState
	err     error
}

// command returns the command of a helper, which runs this program.
func command() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := self
	if runtime.GOOS == "linux" {
		path = "/proc/self/exe" // works even if the file was replaced
	}
	c := exec.Command(path, Argument)
	c.Args[0] = self
	c.Stderr = safetext.NewWriter(os.Stderr) // a verbs library prints what a device or a file says
	c.WaitDelay = stderrWait
	return c, nil
}

// start starts a helper.
func start() (*process, error) {
	c, err := command()
	if err != nil {
		return nil, err
	}
	conn, far, err := socketPair()
	if err != nil {
		return nil, err
	}
	bell, farBell, err := socketPair()
	if err != nil {
		return nil, closeAll(err, conn, far)
	}
	c.ExtraFiles = []*os.File{far, farBell}
	c.SysProcAttr = attributes()
	p := &process{bell: bell, pending: map[uint64]chan *message{}, device: "no device yet", gone: make(chan struct{}), ended: make(chan struct{}),
		lost: make(chan struct{}), watched: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The thread is locked until the child ends, because Linux signals the death of the
		// parent when the thread that started the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := c.Start(); err != nil {
			started <- err
			return
		}
		p.pid, p.started = c.Process.Pid, c.Process
		started <- nil
		_ = c.Wait() // the process state has the details
		p.state = c.ProcessState
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, closeAll(fmt.Errorf("starting the helper process of verbs: %w", err), conn, far, bell, farBell)
	}
	_, _ = far.Close(), farBell.Close() // the child has its own
	nc, err := net.FileConn(conn)
	_ = conn.Close() // FileConn has duplicated it
	if err != nil {
		_ = bell.Close() // so that the child ends
		return nil, err
	}
	p.conn = nc.(*net.UnixConn)
	go p.read()
	go p.watch()
	return p, nil
}

// closeAll closes files after an error and returns that error.
func closeAll(err error, files ...*os.File) error {
	for _, f := range files {
		_ = f.Close()
	}
	return err
}

// socketPair makes two connected sockets that a child does not inherit by accident.
func socketPair() (a, b *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	for _, fd := range fds {
		quiet(fd)
	}
	return os.NewFile(uintptr(fds[0]), "helper"), os.NewFile(uintptr(fds[1]), "helper"), nil
}

// read hands out replies until the connection ends.
func (p *process) read() {
	defer close(p.gone)
	for {
		m, err := receive(p.conn)
		if err != nil {
			return
		}
		_ = m.close() // replies have no files
		p.mu.Lock()
		reply := p.pending[m.ID] // nil: its caller gave up, or there was no request
		delete(p.pending, m.ID)
		p.mu.Unlock()
		if reply != nil {
			reply <- m
		}
	}
}

// watch notices the end of the helper by its socket or by wait, whichever is first.
func (p *process) watch() {
	defer close(p.watched)
	select {
	case <-p.gone:
	case <-p.ended:
	}
	p.mu.Lock()
	wanted, device := p.closing, p.device
	if !wanted && p.onLost != nil {
		p.onLost()
	}
	p.mu.Unlock()
	if wanted {
		return
	}
	timer := time.NewTimer(endedWait)
	defer timer.Stop()
	var state *os.ProcessState
	select {
	case <-p.ended:
		state = p.state
	case <-timer.C:
	}
	p.err = lostError(device, p.pid, state)
	close(p.lost)
	_ = p.conn.Close() // wakes read
}

// call sends a request and waits for the reply. The errno is EPIPE if the helper has ended.
// The caller must bound the time.
func (p *process) call(m *message) *message {
	r, _ := p.callWithin(m, nil)
	return r
}

// callWithin is call until limit; ok says that the answer arrived in time.
func (p *process) callWithin(m *message, limit <-chan time.Time) (r *message, ok bool) {
	reply := make(chan *message, 1)
	p.mu.Lock()
	p.next++
	m.ID = p.next
	p.pending[m.ID] = reply
	p.mu.Unlock()
	p.writing.Lock()
	err := send(p.conn, m)
	p.writing.Unlock()
	if err == nil {
		select {
		case r := <-reply:
			return r, true
		case <-p.gone:
		case <-limit:
			p.mu.Lock()
			delete(p.pending, m.ID)
			p.mu.Unlock()
			return nil, false
		}
	}
	p.mu.Lock()
	delete(p.pending, m.ID)
	p.mu.Unlock()
	<-p.watched // so that the error can say why
	return &message{Errno: int(syscall.EPIPE)}, true
}

// end asks the helper to end, which first destroys its remaining objects, and waits for it.
// A helper that holds no device is killed if it does not end at once. Any other is left
// behind after endLimit, and end returns false.
func (p *process) end() (ended bool) {
	p.mu.Lock()
	p.closing = true
	opened := p.opened
	p.mu.Unlock()
	_ = p.conn.Close()
	limit := endLimit
	if !opened {
		limit = endedWait
	}
	if !p.endsWithin(limit) && !opened {
		_ = p.started.Kill() // an error means that it has just ended
	}
	if !p.endsWithin(endedWait) {
		return false
	}
	<-p.gone
	_ = p.bell.Close()
	return true
}

// endsWithin waits for the end of the helper.
func (p *process) endsWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// why returns the error of a lost helper, nil if the helper is not lost.
func (p *process) why() error {
	select {
	case <-p.lost:
		return p.err
	default:
		return nil
	}
}
