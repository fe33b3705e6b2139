package mpi

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// owner is the thread that starts and ends MPI. Other goroutines give it jobs,
// which it runs one after the other. Between jobs it calls MPI from time to
// time, because an MPI library moves data only during calls.
type owner struct {
	calls sync.Mutex // held by the goroutine that calls MPI
	idle  func()     // lets MPI make progress

	mu     sync.Mutex // guards jobs and closed
	jobs   []func()
	closed bool
	wake   chan struct{}
}

// The minimum and maximum pause between calls of idle.
const (
	firstPause = time.Millisecond
	lastPause  = 64 * time.Millisecond
)

func newOwner() *owner {
	o := &owner{wake: make(chan struct{}, 1)}
	go o.run()
	return o
}

// post gives the owner a job; false if the owner has ended.
func (o *owner) post(job func()) bool { return o.put(job, false) }

// last gives the owner its last job; false if the owner has ended.
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

// take returns the next job, nil if none is queued; more is false when no other
// job can follow.
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
	// The thread is never unlocked, so that the thread on which MPI was started
	// ends with this goroutine and no other goroutine runs on it.
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

// flag is a word that C polls while it waits: 0 until it is raised. It has its
// own allocation without pointers, because cgo requires that.
type flag struct{ word *int32 }

func newFlag() flag            { return flag{new(int32)} }
func (f flag) raise()          { atomic.StoreInt32(f.word, 1) }
func (f flag) pointer() *int32 { return f.word }

// box is a block of memory outside Go's heap.
type box struct {
	p unsafe.Pointer
	n int
}

func newBox(n int) box      { return box{allocate(n), n} }
func (b box) bytes() []byte { return unsafe.Slice((*byte)(b.p), b.n) }
