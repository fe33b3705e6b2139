package api

import (
	"errors"
	"io"
	"sync"
)

// budget bounds the bytes of all bodies that are being received, parsed and tokenized. A
// request never waits for a share of it, so that requests that hold a part of what they
// need cannot block each other.
type budget struct {
	limit int64

	mu   sync.Mutex // guards the fields below
	used int64
	no   uint64 // requests refused
}

// leastShare is the share of the smallest body.
const leastShare = 16 << 10

// errBudget is the error of a reader when its share cannot grow.
var errBudget = errors.New("the budget for bodies is used up")

// usage returns the bytes in use and how many requests were refused.
func (b *budget) usage() (used int64, refused uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.no
}

// share is what one request holds of a budget.
type share struct {
	budget *budget
	held   int64
	need   int64 // bytes received
	over   bool  // released, or refused
}

// open takes the least share if a body of the announced length would fit (-1: its length
// is not known). Otherwise it returns nil.
func (b *budget) open(announced int64) *share {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+max(announced, leastShare) > b.limit && b.used > 0 {
		b.no++
		return nil
	}
	b.used += leastShare
	return &share{budget: b, held: leastShare}
}

// add counts n more bytes; it returns false if they exceed the budget.
func (s *share) add(n int64) bool {
	s.need += n
	more := s.need - s.held
	if more <= 0 {
		return true
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	// A body that is alone may exceed the budget a little.
	if b.used+more > b.limit && b.used > s.held {
		b.no++
		return false
	}
	b.used += more
	s.held += more
	return true
}

// give returns n bytes of what was added, which are no longer needed.
func (s *share) give(n int64) {
	s.need -= n
	less := min(n, s.held-max(s.need, leastShare))
	if s.over || less <= 0 {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.used -= less
	s.held -= less
}

// release returns the share to the budget. It may be called more than once.
func (s *share) release() {
	if s.over {
		return
	}
	s.over = true
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.used -= s.held
}

// sharedReader counts what it reads.
type sharedReader struct {
	io.Reader
	share *share
}

// Read fails with errBudget when the share cannot grow.
func (r sharedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.share.add(int64(n)) {
		return 0, errBudget
	}
	return n, err
}
