package mpi

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// owner is the thread that starts and ends MPI. Others give it jobs, which it
// does one after the other; between them it gives MPI a moment now and then,
// because an MPI library moves data only while it is called.
type owner struct {
	calls sync.Mutex // held by whoever calls MPI
	idle  func()     // gives MPI a moment

	mu     sync.Mutex // guards jobs and closed
	jobs   []func()
	closed bool
	wake   chan struct{}
}

// The pauses between such moments.
const (
	firstPause = time.Millisecond
	lastPause  = 64 * time.Millisecond
)

func newOwner() *owner {
	o := &owner{wake: make(chan struct{}, 1)}
	go o.run()
	return o
}

// post gives the owner a job; false if it has ended.
func (o *owner) post(job func()) bool { return o.put(job, false) }

// last gives the owner its last job; false if it has ended.
func (o *owner) last(job func()) bool { return o.put(job, true) }

func (o *owner) put(job func(), last bool) bool {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return false
	}
	o.jobs = append(o.jobs, job)
	o.closed = last
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return true
}

// take gives the next job, nil if there is none; more is false when none will
// come.
func (o *owner) take() (job func(), more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.jobs) == 0 {
		return nil, !o.closed
	}
	job = o.jobs[0]
	o.jobs[0] = nil
	o.jobs = o.jobs[1:]
	if len(o.jobs) == 0 {
		o.jobs = nil
	}
	return job, true
}

func (o *owner) run() {
	// Never unlocked: the thread that MPI was started on ends with this
	// goroutine, and nobody else gets it.
	runtime.LockOSThread()
	timer := time.NewTimer(lastPause)
	defer timer.Stop()
	pause := firstPause
	for {
		job, more := o.take()
		switch {
		case job != nil:
			o.calls.Lock()
			job()
			o.calls.Unlock()
			pause = firstPause
			continue
		case !more:
			return
		}
		timer.Reset(pause)
		select {
		case <-o.wake:
		case <-timer.C:
			o.calls.Lock()
			if o.idle != nil {
				o.idle()
			}
			o.calls.Unlock()
			pause = min(2*pause, lastPause)
		}
	}
}

// flag is a word that C looks at while it waits: 0 until it is raised. It is
// memory of its own without pointers, as C wants it.
type flag struct{ word *int32 }

func newFlag() flag            { return flag{new(int32)} }
func (f flag) raise()          { atomic.StoreInt32(f.word, 1) }
func (f flag) pointer() *int32 { return f.word }

// box is memory outside Go's heap.
type box struct {
	p unsafe.Pointer
	n int
}

func newBox(n int) box      { return box{allocate(n), n} }
func (b box) bytes() []byte { return unsafe.Slice((*byte)(b.p), b.n) }
