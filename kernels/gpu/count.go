//go:build cgo

package gpu

// #include "device.h"
import "C"

import (
	"time"
)

// heavy is the bytes of weights from which a stage is no light one. A dispatch that binds less,
// such as a table or the weights of a norm, waits more than it reads.
const heavy = 1 << 20

// counter counts what was committed.
type counter struct {
	counts     Counts
	dispatches []int // by kernel; the indices of allKernels
	most       []int // working memory: by stage, the most bytes of weights of a dispatch, -1 for no dispatch
}

// committed counts a list.
func (c *counter) committed(l *commandList) {
	c.counts.Buffers++
	c.counts.Dispatches += l.n
	c.most = c.most[:0]
	for range l.stages {
		c.most = append(c.most, -1)
	}
	for i, s := range l.stageOf {
		c.most[s] = max(c.most[s], l.weights[i])
		c.dispatches[l.kernels[i]]++
	}
	for _, bytes := range c.most {
		if bytes >= 0 {
			c.counts.Stages++
			if bytes < heavy {
				c.counts.Light++
			}
		}
	}
}

// waited counts a wait that began at start, was expected to take so long and polled for so
// long at most.
func (c *counter) waited(start time.Time, expected, polling time.Duration) {
	took := time.Since(start)
	c.counts.Waits++
	c.counts.Waiting.Expected += expected
	c.counts.Waiting.Took += took
	if took > polling {
		c.counts.Waiting.Slept++
	}
}

// Counts is what was submitted and awaited since New.
func (b *Backend) Counts() Counts {
	c := b.counter.counts
	c.Of = map[string]int{}
	for i, n := range b.counter.dispatches {
		if n > 0 {
			c.Of[allKernels[i].name] += n
		}
	}
	return c
}

// CommandBuffers is how many command buffers were submitted.
func (b *Backend) CommandBuffers() int { return b.counter.counts.Buffers }

// DeviceTime: see kernels.DeviceTime.
func (b *Backend) DeviceTime() (time.Duration, bool) {
	if b.m == nil {
		return 0, false
	}
	var ns C.uint64_t
	known := C.rmg_busy(b.m, &ns) != 0
	return time.Duration(ns), known
}
