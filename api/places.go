package api

import "sync"

// places bounds the concurrent requests to /tokenize and /detokenize, from the parsed
// body to the written answer, because their work needs a bound as the engine's does. A
// request never waits for a place; the client gets a 429.
type places struct {
	limit int

	mu      sync.Mutex // guards the fields below
	used    int
	refused uint64
}

// take takes a place, and returns false if none is free.
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

// usage returns how many places are taken and how many requests were refused.
func (p *places) usage() (used int, refused uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, p.refused
}
