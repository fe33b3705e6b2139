package kernels

// Span is bytes of a mapping that one op reads as a weight.
type Span struct {
	Data    []byte
	Experts bool // the weight is of routed experts
}

// Hold tells a backend which weights ops read from now on, in place of what it was told before,
// so that a device gets them in few large pieces. used lists them, in any order and perhaps
// several times; a backend to which it makes no difference does not call it. It is called
// after Map, between a Flush and the next op. Ops may read other weights too: a backend then
// does what it does without Hold, when an op first reads one. The error is the device's or that
// of used. A backend that has something to do has a method Hold.
func Hold(b Backend, used func() ([]Span, error)) error {
	if h, ok := b.(interface {
		Hold(used func() ([]Span, error)) error
	}); ok {
		return h.Hold(used)
	}
	return nil
}
