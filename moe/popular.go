package moe

import "sync"

// sampledRows bounds the rows of a step whose choices are counted, so that memory and time
// are bounded too.
const sampledRows = 64

// popular counts how often rows chose each expert, over all groups that the Forward joined
// as rank 0.
type popular struct {
	step [][]int32 // [layers] ids of the first rows of the step

	mu     sync.Mutex // guards counts
	counts [][]uint64 // [layers][experts]
}

// note notes the choice of experts of a layer of the step.
func (p *popular) note(layer int, ids []int32, used int) {
	for len(p.step) <= layer {
		p.step = append(p.step, nil)
	}
	p.step[layer] = append(p.step[layer], ids[:min(len(ids), sampledRows*used)]...)
}

// forget drops what the step chose.
func (p *popular) forget() {
	for l := range p.step {
		p.step[l] = p.step[l][:0]
	}
}

// CountChosen counts the experts that the rows of the step chose; steps that are never
// committed, such as those of a calibration, count nothing.
func (f *Forward) CountChosen() {
	p := &f.popular
	p.mu.Lock()
	defer p.mu.Unlock()
	for l, ids := range p.step {
		for len(p.counts) <= l {
			p.counts = append(p.counts, make([]uint64, f.shape.Experts))
		}
		for _, e := range ids {
			if e >= 0 && int(e) < f.shape.Experts {
				p.counts[l][e]++
			}
		}
	}
	p.forget()
}

// Chosen returns how often rows chose each expert [layers][experts] in committed steps of
// groups in which this is rank 0. A layer without experts has no counts. Any goroutine may
// call it.
func (f *Forward) Chosen() [][]uint64 {
	p := &f.popular
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([][]uint64, len(p.counts))
	for l, counts := range p.counts {
		out[l] = append([]uint64(nil), counts...)
	}
	return out
}
