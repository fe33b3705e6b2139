package api

import (
	"bytes"

	"ringmaster/engine"
)

// thinkEnd is the text that ends the reasoning of an answer.
const thinkEnd = "</think>"

// place tells of each token of an answer whether it belongs to the reasoning.
// Text may be held back behind its tokens, so the tokens are followed by
// themselves. The marker is usually one token; its bytes are looked for too,
// because a vocabulary need not have it.
type place struct {
	inside bool
	id     int32 // of the marker, or -1
	tail   []byte
}

func newPlace(t Tokenizer, thinking bool) place {
	id, ok := t.ID(thinkEnd)
	if !ok {
		id = -1
	}
	return place{inside: thinking, id: id}
}

// reasoning reports whether the next token of the answer is reasoning; the
// marker that ends it is.
func (p *place) reasoning(t engine.Token) bool {
	if !p.inside {
		return false
	}
	p.tail = append(p.tail, t.Bytes...)
	if t.ID == p.id || bytes.Contains(p.tail, []byte(thinkEnd)) {
		p.inside = false
	}
	if keep := len(thinkEnd) - 1; len(p.tail) > keep {
		p.tail = append(p.tail[:0], p.tail[len(p.tail)-keep:]...)
	}
	return true
}

// endToken reports whether token i of an event is the end token that closed
// the answer. It has no place in the text and so none in the logprobs.
func (s *server) endToken(e engine.Event, i int) bool {
	return i == len(e.Tokens)-1 && e.Finish == engine.FinishStop && e.StopText == "" && s.Tokenizer.IsEnd(e.Tokens[i].ID)
}
