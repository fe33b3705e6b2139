package cpu

import "fmt"

// Activations is the precision to which activations are rounded before they are
// multiplied by quantised weights, in groups of 32 with a float32 scale each. It does not
// matter to weights of F32, F16 and BF16, and of those types that are converted to float32.
type Activations int

// The precisions. With 15 bits the rounding of activations is smaller than that of the KV
// cache. With 8 bits it is as large as in llama.cpp, and products of several tokens need
// one multiplication in place of two.
const (
	Bits15 Activations = iota
	Bits8
)

// ParseActivations reads a number of bits, "15" or "8".
func ParseActivations(text string) (Activations, error) {
	for _, a := range []Activations{Bits15, Bits8} {
		if a.String() == text {
			return a, nil
		}
	}
	return 0, fmt.Errorf("activations have 15 or 8 bits, not %q", text)
}

// Bits is the number of bits.
func (a Activations) Bits() int {
	if a == Bits8 {
		return 8
	}
	return 15
}

// String is the number of bits.
func (a Activations) String() string {
	switch a {
	case Bits15:
		return "15"
	case Bits8:
		return "8"
	}
	return fmt.Sprintf("activations %d", int(a))
}

// MaxThreads bounds Options.Threads, because a typing error must not ask the system for
// millions of threads. It is far above any host.
const MaxThreads = 4096

// Options say how a backend computes.
type Options struct {
	Threads     int // including the caller's; 0 is every processor that the process may run on
	Level       Level
	Activations Activations
}
