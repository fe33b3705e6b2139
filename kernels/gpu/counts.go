package gpu

import (
	"fmt"
	"time"
)

// Counts is what was submitted to a device and awaited.
type Counts struct {
	Dispatches int
	// Stages are the dispatches that nothing runs beside: barriers and the beginnings of
	// command buffers.
	Stages  int
	Light   int // stages in which no dispatch reads weights of at least 1 MB
	Buffers int // command buffers
	Waits   int // how often the host waited for the device

	Waiting Waiting
	Of      map[string]int // dispatches by kernel
}

// Waiting is how long the host waited for the device.
type Waiting struct {
	Expected time.Duration // by the estimates of the work, at the pace of the work before
	Took     time.Duration
	Slept    int // waits that took longer than the host polls
}

// Minus is what was counted since o.
func (c Counts) Minus(o Counts) Counts {
	d := Counts{c.Dispatches - o.Dispatches, c.Stages - o.Stages, c.Light - o.Light, c.Buffers - o.Buffers, c.Waits - o.Waits,
		Waiting{c.Waiting.Expected - o.Waiting.Expected, c.Waiting.Took - o.Waiting.Took, c.Waiting.Slept - o.Waiting.Slept}, map[string]int{}}
	for kernel, n := range c.Of {
		if n -= o.Of[kernel]; n > 0 {
			d.Of[kernel] = n
		}
	}
	return d
}

// Plus is what both counted.
func (c Counts) Plus(o Counts) Counts {
	of := map[string]int{}
	for _, x := range []Counts{c, o} {
		for kernel, n := range x.Of {
			of[kernel] += n
		}
	}
	return Counts{c.Dispatches + o.Dispatches, c.Stages + o.Stages, c.Light + o.Light, c.Buffers + o.Buffers, c.Waits + o.Waits,
		Waiting{c.Waiting.Expected + o.Waiting.Expected, c.Waiting.Took + o.Waiting.Took, c.Waiting.Slept + o.Waiting.Slept}, of}
}

// String has all but times and kernels.
func (c Counts) String() string {
	return fmt.Sprintf("dispatches=%d stages=%d light=%d buffers=%d waits=%d", c.Dispatches, c.Stages, c.Light, c.Buffers, c.Waits)
}
