package api

import (
	"bytes"

	"ringmaster/engine"
)

// thinkEnd is the text that ends the reasoning of an answer.
const thinkEnd = "</think>"

// reasoningTracker decides for each token of an answer whether it belongs to the
// reasoning. It follows the tokens and not the text of the events, which may lag
// behind them. The end marker is usually one token; its bytes are searched for
// as well, because not every vocabulary has it.
type reasoningTracker struct {
	inside bool
	id     int32  // of the marker, or -1
	tail   []byte // the last bytes, which may be the start of a marker
}

// newReasoningTracker starts inside the reasoning if thinking is on.
func newReasoningTracker(t Tokenizer, thinking bool) reasoningTracker {
	id, ok := t.ID(thinkEnd)
	if !ok {
		id = -1
	}
	return reasoningTracker{inside: thinking, id: id}
}

// reasoning reports whether the next token of the answer belongs to the
// reasoning; the end marker does.
func (r *reasoningTracker) reasoning(t engine.Token) bool {
	if !r.inside {
		return false
	}
	r.tail = append(r.tail, t.Bytes...)
	if t.ID == r.id || bytes.Contains(r.tail, []byte(thinkEnd)) {
		r.inside = false
	}
	if keep := len(thinkEnd) - 1; len(r.tail) > keep {
		r.tail = append(r.tail[:0], r.tail[len(r.tail)-keep:]...)
	}
	return true
}

// endToken reports whether token i of an event is the end token that finished
// the answer. It is not part of the text, so it gets no log-probabilities.
func (s *server) endToken(e engine.Event, i int) bool {
	return i == len(e.Tokens)-1 && e.Finish == engine.FinishStop && e.StopText == "" && s.Tokenizer.IsEnd(e.Tokens[i].ID)
}
