package kernels

// Await lets ops read data that no op has written: what a group exchanges while the host
// encodes. wait waits until the data is in memory of the backend. use encodes the first ops
// that read it; other ops may follow.
//
// A backend may call use first, and wait only when it starts ops: on a GPU the ops up to the
// next Flush are encoded while the data travels, and none of them starts before wait has
// returned. So no op that was encoded since the last Flush may use the memory of the data,
// and until the next one only wait, and what it waits for, may write there. If wait returns
// changed, use is called again and encodes what replaces the ops of its first call, such as
// other ones after an overflow.
//
// An error of wait is that of Await or of the next Flush. Ops that were encoded after Await
// do not run then. It is no failure of the backend.
func Await(b Backend, wait func() (changed bool, err error), use func()) error {
	if late, ok := b.(interface {
		Await(wait func() (changed bool, err error), use func()) error
	}); ok {
		return late.Await(wait, use)
	}
	if _, err := wait(); err != nil {
		return err
	}
	use()
	return nil
}

// Reach is a Flush whose caller needs results soon, such as a group that exchanges them:
// they are there when it returns. A failure of the device may be reported only by the next
// Reach or Flush. A backend has a method Reach if the two differ.
func Reach(b Backend) error {
	if r, ok := b.(interface{ Reach() error }); ok {
		return r.Reach()
	}
	return b.Flush()
}
