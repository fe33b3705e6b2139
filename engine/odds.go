package engine

import "ringmaster/engine/drafts"

// odds estimates how likely drafts are right, from what became of earlier ones: those of the
// same kind in any request, and those of the same request, which weigh more. Equal outcomes
// give equal estimates.
type odds [drafts.Sources][kinds]tally

// kinds are the classes of drafts of a source, by the length of the match.
const kinds = 5

// kindOf returns the class of a match.
func kindOf(match int) int {
	switch {
	case match <= 3:
		return 0
	case match <= 5:
		return 1
	case match <= 8:
		return 2
	case match <= 16:
		return 3
	}
	return 4
}

// prior is how often drafts of each kind were right in 40 edits of source files and texts.
var prior = [kinds]float64{0.5, 0.6, 0.7, 0.8, 0.9}

const (
	priorWeight = 8.0  // drafts that the prior counts as
	ownWeight   = 12.0 // drafts of others that count as much as a request's own
	// remembered bounds a tally. Beyond it the old outcomes lose half of their weight.
	remembered = 256.0
	// hopeless is after how many steps without drafts that did not pay one is tried again,
	// because otherwise an estimate that is too low stays.
	hopeless = 48
)

// tally counts outcomes.
type tally struct{ right, tried float64 }

func (t *tally) add(right bool) {
	if t.tried++; right {
		t.right++
	}
	if t.tried > remembered {
		t.right, t.tried = t.right/2, t.tried/2
	}
}

// of returns how likely the next token of a draft is right if those before it are; own has
// the outcomes of the request.
func (o *odds) of(source drafts.Source, match int, own tally) float64 {
	kind := kindOf(match)
	all := o[source][kind]
	p := (all.right + priorWeight*prior[kind]) / (all.tried + priorWeight)
	return (own.right + ownWeight*p) / (own.tried + ownWeight)
}

// learn records what became of the drafts of a part: all that were kept were right, and the
// next one was wrong if it was refuted.
func (o *odds) learn(p part) {
	g := &p.task.guess
	t := &o[g.Source][kindOf(g.Match)]
	for range p.kept - 1 {
		t.add(true)
		p.task.luck.add(true)
	}
	if p.refuted {
		t.add(false)
		p.task.luck.add(false)
	}
}
