package engine

import "time"

// pace bounds the prompt tokens of a step by time, so that the sequences that decode beside
// them get their next token within a target. Where decoding alone takes more than half of
// the target, prompts get as much time as it does, because they must come to an end too.
// The cost of steps is learned as they are committed, so the bound follows the backend, the
// group and the depth of the prompts; equal times give equal bounds.
type pace struct {
	target time.Duration // 0: none
	fixed  float64       // seconds of a step that only decodes; 0: none was seen
	token  float64       // seconds that a prompt token adds to a step; 0: none was seen
	mixed  int           // steps with prompts since the last that only decoded
	rows   rowCosts      // of steps that only decode
}

const (
	// learning is the weight of the last step in the averages.
	learning = 0.25
	// paceGrain is the unit of the bound in tokens: half of it, which is lost on average, is a
	// twentieth of the target where a token takes 2 ms, about what equal steps vary by.
	paceGrain = 8
	// paceLeast is the least bound: so few tokens cost little more than the first.
	paceLeast = 16
	// paceProbe is after how many steps with prompts one only decodes, because fixed cannot
	// be told from token otherwise, and changes with the sequences and their lengths.
	paceProbe = 32
)

// learn records the time of a step with so many tokens of prompts, of sequences that
// decode, and of drafts. The time of drafts is no part of fixed, so that they take nothing
// from prompts.
func (p *pace) learn(prompt, decoding, drafts int, took time.Duration) {
	t := took.Seconds()
	switch {
	case t <= 0 || prompt+decoding == 0:
	case prompt == 0:
		p.mixed = 0
		cost := p.rows.of(decoding)
		cost.learn(decoding+drafts, drafts, t)
		_, row := cost.line()
		average(&p.fixed, max(t-row*float64(drafts), t/float64(1+drafts)))
	default:
		if decoding > 0 {
			p.mixed++
		}
		if prompt >= paceLeast { // else the step's own cost hides theirs
			average(&p.token, max(t-p.fixed, 0)/float64(prompt+drafts))
		}
	}
}

func average(mean *float64, x float64) {
	if *mean == 0 {
		*mean = x
	}
	*mean += learning * (x - *mean)
}

// step returns the expected seconds of a step with so many tokens of prompts and sequences
// that decode, and of a further row in it.
func (p *pace) step(prompt, decoding int) (seconds, row float64) {
	first, row := p.rows.of(decoding).line()
	seconds = first + row*float64(decoding-1)
	if prompt == 0 {
		return seconds, row
	}
	// Beside prompts a row costs about what a token of theirs does.
	token := p.token
	if token == 0 || token > row {
		token = row
	}
	return seconds + token*float64(prompt), token
}

// probes reports whether the next step with sequences that decode should have no prompts.
func (p *pace) probes() bool { return p.target > 0 && p.mixed >= paceProbe }

// bound returns how many tokens of prompts a step may have while sequences decode, at most
// most; 0 if it probes.
func (p *pace) bound(most int) int {
	if p.probes() {
		return 0
	}
	if p.target == 0 || p.token == 0 {
		return most
	}
	n := max(p.target.Seconds()-p.fixed, p.fixed) / p.token
	if n >= float64(most) {
		return most
	}
	return min(most, max(paceLeast, int(n)/paceGrain*paceGrain))
}
