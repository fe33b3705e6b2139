//go:build !cgo || !(linux || darwin)

package rdma

import (
	"time"

	"ringmaster/distributed"
)

// Without cgo there is no verbs library: verbs.Open fails, and nothing below is
// reached.

type conn struct{}

func (e *end) connect(uint32, int, int, int) error { return distributed.ErrUnavailable }
func (e *end) disconnect()                         {}
func (e *end) postHead() int                       { return 0 }
func (e *end) drain(time.Duration) int             { return 0 }

const maxGrants = 0

func (e *end) roomAddress() uint64 { return 0 }
func (e *end) tell(uint64, uint32) {}
func (e *end) grant() int          { return 0 }
func (e *end) granted(uint64) bool { return false }
func (e *end) roomy() bool         { return true }

func newFlag() *int32 { return new(int32) }
func freeFlag(*int32) {}

type scratchMemory struct{}

func (s *scratchMemory) free() {}

type job struct {
	ends  []*end
	large bool
}

func compile(shape) (*job, error)                                { return nil, distributed.ErrUnavailable }
func (j *job) free()                                             {}
func (j *job) begin(uint64, *scratchMemory, *int32) int          { return runBroken }
func (j *job) run([]byte, []byte, time.Duration) int             { return runBroken }
func (j *job) reduce([]byte, []byte) int                         { return runBroken }
func (j *job) counts() (sent, received uint64, heard, now int64) { return 0, 0, 0, 0 }
func (j *job) silent() []*end                                    { return nil }
func (j *job) needs(int) bool                                    { return false }
func (j *job) fault() fault                                      { return fault{} }
func scan([]*end, time.Duration) (fault, bool)                   { return fault{}, false }
