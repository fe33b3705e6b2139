package api

import "sync"

// places bounds the requests to /tokenize and /detokenize that are under way,
// from the parsed body to the written answer: their work is admitted as that of
// the engine is. Nobody waits for a place; the client gets a 429.
type places struct {
	limit int

	mu      sync.Mutex // guards the fields below
	used    int
	refused uint64
}

// take takes a place, and reports false if there is none.
func (p *places) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used >= p.limit {
		p.refused++
		return false
	}
	p.used++
	return true
}

// leave gives a place back.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
}

// usage returns the places taken and how many requests were refused.
func (p *places) usage() (used int, refused uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, p.refused
}
