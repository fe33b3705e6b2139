//go:build !cgo || !(linux || darwin)

package engine

import (
	"time"

	"ringmaster/distributed"
)

// Without cgo verbs.Open fails, because no library can be loaded. So no queue
// pair exists, and only the compiler needs the declarations below.

type handle struct{}

// Open fails.
func (c *Conn) Open(uint32, Layout) error { return distributed.ErrUnavailable }

// Free does nothing, like all methods below.
func (c *Conn) Free() {}

// CreditAddress returns 0.
func (c *Conn) CreditAddress() uint64 { return 0 }

// UseCredits does nothing.
func (c *Conn) UseCredits(uint64, uint32) {}

// SendCredit does nothing.
func (c *Conn) SendCredit() int { return 0 }

// CreditSent returns false.
func (c *Conn) CreditSent(uint64) bool { return false }

// HasCredit returns true.
func (c *Conn) HasCredit() bool { return true }

// PostHeader does nothing.
func (c *Conn) PostHeader() int { return 0 }

func (c *Conn) drain(time.Duration) int { return 0 }

func newFlag() *int32 { return new(int32) }
func freeFlag(*int32) {}

type scratchMemory struct{}

func (s *scratchMemory) free() {}

// Task is never made.
type Task struct{ Bytes int64 }

func compile(shape) (*Task, error)                          { return nil, distributed.ErrUnavailable }
func (t *Task) free()                                       {}
func (t *Task) begin(uint64, *scratchMemory, *int32) Result { return Broken }
func (t *Task) run([]byte, []byte, time.Duration) Result    { return Broken }
func (t *Task) reduce([]byte, []byte) Result                { return Broken }
func (t *Task) fault() fault                                { return fault{} }
func scan([]*Conn, time.Duration) (fault, bool)             { return fault{}, false }

// Moved returns zeros.
func (t *Task) Moved() (sent, received int64) { return 0, 0 }

// OddLengths returns none.
func (t *Task) OddLengths() (n int64, c *Conn, stated, expected uint32) { return 0, nil, 0, 0 }

// SinceHeader returns false.
func (t *Task) SinceHeader() (time.Duration, bool) { return 0, false }

// Silent returns no rank.
func (t *Task) Silent() []int { return nil }

// Needs returns false.
func (t *Task) Needs(int) bool { return false }
