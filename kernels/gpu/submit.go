//go:build cgo

package gpu

/*
#include <stdlib.h>
#include "device.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// How much is committed at once. The device begins with the first dispatches of a step, or of
// what follows an exchange, while the host encodes the rest. A commit costs some ten
// microseconds, so that after that each one has four times as much as all before since the last
// wait: encoding a dispatch takes a fraction of its time on the device.
const (
	firstDispatches = 8
	growth          = 4
)

// ahead is what was committed since the host last waited for the device.
type ahead struct {
	dispatches int
	estimate   time.Duration // of its work
	began      time.Time     // when the first of it was committed
}

// arrival is data of Await that has not been waited for. The list begins with the dispatches
// of use; none of it may start yet.
type arrival struct {
	wait func() (changed bool, err error)
	use  func()
	uses int // dispatches of use
}

// Await: see kernels.Await. use is called at once.
func (b *Backend) Await(wait func() (changed bool, err error), use func()) error {
	if _, err := b.settle(); err != nil {
		return err
	}
	if b.m == nil {
		return errClosed
	}
	b.commit() // it does not need the data
	b.arrival = &arrival{wait: wait, use: use}
	use()
	b.arrival.uses = b.list.n
	return nil
}

// settle waits for the data that the list needs. After an error the list is empty. changed
// says that the list has other dispatches than before.
func (b *Backend) settle() (changed bool, err error) {
	a := b.arrival
	if a == nil {
		return false, nil
	}
	b.arrival = nil
	if changed, err = a.wait(); err != nil {
		b.list.clear()
		return false, err
	}
	if changed && b.list.n >= a.uses { // not after a failure, which has emptied it
		b.list.replace(a.uses, a.use)
	}
	return changed, nil
}

// settleNow is settle where no error can be returned: the next Flush does.
func (b *Backend) settleNow() {
	if _, err := b.settle(); err != nil && b.late == nil {
		b.late = err
	}
}

// Submit commits the encoded dispatches as a command buffer, without waiting, if the device
// may soon have nothing to do and they may start.
func (b *Backend) Submit() {
	if b.arrival == nil && (b.ahead.dispatches < 2*firstDispatches || b.list.n >= growth*b.ahead.dispatches) {
		b.commit()
	}
}

// split commits the list, which has as much work as a command buffer may have.
func (b *Backend) split() {
	if b.arrival != nil && b.arrival.uses == 0 {
		return // within use, whose ops are short
	}
	b.settleNow()
	b.commit()
}

// encode lets the device encode the list, and reports whether there is something to commit.
func (b *Backend) encode() bool {
	l := &b.list
	if l.n == 0 || b.m == nil {
		return false
	}
	if b.err != nil || b.late != nil {
		l.clear()
		return false
	}
	l.arrange()
	var text [1024]C.char
	label := C.CString(fmt.Sprintf("%d: %s to %s, %d dispatches", b.CommandBuffers(), C.GoString(l.commands[0].op), C.GoString(l.commands[l.n-1].op), l.n))
	defer C.free(unsafe.Pointer(label))
	if C.rmg_encode(b.m, &l.commands[0], &l.order[0], C.size_t(l.n), label, &text[0], C.size_t(len(text))) != 0 {
		b.fail(errors.New(C.GoString(&text[0])))
		l.clear()
		return false
	}
	return true
}

// commit encodes and starts the list.
func (b *Backend) commit() {
	if b.encode() {
		b.start()
	}
}

// start starts the list, which the device has encoded.
func (b *Backend) start() {
	var text [1024]C.char
	if C.rmg_commit(b.m, &text[0], C.size_t(len(text))) != 0 {
		b.fail(errors.New(C.GoString(&text[0])))
	}
	b.counter.committed(&b.list)
	if b.ahead.dispatches == 0 {
		b.ahead.began = time.Now()
	}
	b.ahead.dispatches += b.list.n
	b.ahead.estimate += b.list.spent
	b.list.clear()
}

// Flush submits the encoded dispatches and waits for the device. It returns the
// first failure since Open; after one, no results are valid.
func (b *Backend) Flush() error { return b.flush(false) }

// Reach: see kernels.Reach.
func (b *Backend) Reach() error { return b.flush(true) }

// flush is Flush; with results a later one may report a failure.
func (b *Backend) flush(results bool) error {
	err := b.late
	if b.arrival == nil {
		b.commit()
	} else {
		encoded := b.encode()
		changed, failed := b.settle() // also after an error: no later step may find it
		err = cmp.Or(err, failed)
		if encoded && (changed || err != nil) {
			C.rmg_drop(b.m)
			encoded = false
		}
		switch {
		case encoded:
			b.start()
		case err == nil:
			b.commit()
		}
	}
	b.late = nil
	b.drain(results)
	if b.err != nil {
		return b.err
	}
	return err
}

// drain waits for what was committed and records failures, including faults that kernels
// report. With results a failure of the device may be recorded by a later call.
func (b *Backend) drain(results bool) {
	if b.m == nil || b.stuck {
		return
	}
	policy := b.wait
	start, expected, polling := time.Now(), b.left(), b.polling()
	policy.spin_us = C.uint32_t(polling.Microseconds())
	if results {
		policy.results = 1
	}
	var text [2048]C.char
	switch C.rmg_wait(b.m, policy, &text[0], C.size_t(len(text))) {
	case -1:
		b.fail(errors.New(C.GoString(&text[0])))
	case -2:
		b.stuck = true
		b.fail(fmt.Errorf("%s; restart the program, and the host if it happens again", C.GoString(&text[0])))
	}
	if b.ahead.dispatches > 0 {
		b.counter.waited(start, max(0, expected), polling)
	}
	b.learn(time.Now())
	if b.fault.object == nil { // not opened yet
		return
	}
	if code := *(*uint32)(b.fault.contents); code != 0 {
		b.fail(errors.New(faultText(code)))
	}
}

// fail records the first failure.
func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Faults that kernels report: the numbers of the preludes of the shading languages.
const (
	faultBytes = 64
	faultRow   = 1
)

func faultText(code uint32) string {
	if code == faultRow {
		return "a row index is out of range of the matrix or table"
	}
	return fmt.Sprintf("a kernel reported fault %d", code)
}
