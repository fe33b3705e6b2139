package engine

import (
	"cmp"
	"slices"

	"ringmaster/engine/drafts"
)

// guess is the draft of a task: tokens that may follow the one that it runs next.
type guess struct {
	drafts.Guess
	asked bool // there is no other for this token
}

const (
	// maxDraftRows bounds the drafts of a step, because each has a row of logits.
	maxDraftRows = 32
	// slowdown is how much longer a step may take for a sequence because of the drafts of
	// others, relative to what it takes without them. Nor may it take longer than if the
	// sequences took turns.
	slowdown = 4. / 3
)

// candidate is a decoding part of the next step that may get drafts.
type candidate struct {
	part  *part
	odds  float64 // of each further draft, if those before it are right
	next  float64 // that the next draft counts
	total float64 // expected tokens
	most  int     // drafts
	fair  int     // tokens of the part with which none waits too long
}

// addDrafts gives drafts to the decoding parts of the next step, at most left tokens, while
// they pay: the next is the one that is most likely to count, and it must add more tokens
// for its time than the step has without it. If parts without drafts, or with less likely
// ones, would then wait too long for their tokens, the last ones are taken back.
func (s *scheduler) addDrafts(left int) {
	all, prompts := s.candidates()
	took, row := s.pace.step(prompts, len(all))
	longest := slowdown * took
	if prompts > 0 {
		longest = max(longest, s.pace.target.Seconds())
	} else {
		longest = min(longest, float64(len(all))*(took-float64(len(all)-1)*row))
	}
	tokens := float64(len(all))
	for left = min(left, maxDraftRows); left > 0; left-- {
		c := likeliest(all)
		if c == nil || c.next*took <= tokens*row && !s.always {
			break
		}
		took, tokens = took+row, tokens+c.next
		c.total += c.next
		c.next *= c.odds
		c.part.n++
		if s.always || took <= longest*fewestTokens(all) {
			for _, c := range all {
				c.fair = c.part.n
			}
		}
	}
	for _, c := range all {
		c.part.n = c.fair
		s.setDrafts(c.part, left > 0 && c.most > 0, len(all))
	}
}

// candidates returns the decoding parts of the next step, and how many tokens of prompts it
// has beside them.
func (s *scheduler) candidates() (all []*candidate, prompts int) {
	for i := range s.parts {
		p := &s.parts[i]
		if p.prompt {
			prompts += p.n
			continue
		}
		c := &candidate{part: p, total: 1, fair: 1}
		if g := p.task.guess; len(g.Tokens) > 0 {
			c.odds = s.odds.of(g.Source, g.Match, p.task.luck)
			c.next, c.most = c.odds, s.roomForDrafts(p)
		}
		all = append(all, c)
	}
	return all, prompts
}

// likeliest returns the part with the draft that is most likely to count, nil if none has a
// further one.
func likeliest(all []*candidate) (best *candidate) {
	for _, c := range all {
		if c.part.n <= c.most && (best == nil || c.next > best.next) {
			best = c
		}
	}
	return best
}

// fewestTokens returns the fewest tokens that a part expects.
func fewestTokens(all []*candidate) float64 {
	return slices.MinFunc(all, func(a, b *candidate) int { return cmp.Compare(a.total, b.total) }).total
}

// setDrafts sets what a part runs, one of so many. If its drafts did not pay, one of them is
// tried now and then, by all parts together as often as by one alone.
func (s *scheduler) setDrafts(p *part, tries bool, of int) {
	t := p.task
	if p.n == 1 && tries {
		if t.unpaid++; t.unpaid >= hopeless*of {
			p.n++
		}
	}
	if p.n == 1 {
		return
	}
	t.unpaid = 0
	p.rows, p.kept = p.n, p.n
	p.tokens = append(t.todo[:1:1], t.guess.Tokens[:p.n-1]...)
	s.mem.name(t.seq, p.pos+p.n)
}

// forgoDrafts takes the drafts away from the requests of the step in flight, and reports
// whether there were any.
func (s *scheduler) forgoDrafts() (had bool) {
	for i := range s.parts {
		if p := &s.parts[i]; p.drafts() > 0 {
			p.task.guess, had = guess{asked: true}, true
		}
	}
	return had
}

// roomForDrafts returns how many of its drafts a part could run. They take no memory that
// the sequence would not have otherwise, so that no request fails or waits because of them.
func (s *scheduler) roomForDrafts(p *part) int {
	t := p.task
	n := len(t.guess.Tokens)
	if s.mem.limited() {
		has := s.mem.size(max(s.mem.held[t.seq], t.reserve))
		for n > 0 && s.mem.size(max(p.pos+1+n, t.reserve)) > has {
			n--
		}
	}
	return n
}
