package chat

import (
	"cmp"
	"strings"
)

// jsonCalls is a markup in which a call is a name and a JSON object between
// markers:
//
//	BLOCK CALL before SEP after ARGUMENTS fence CALLEND ... BLOCKEND
type jsonCalls struct {
	block, call, sep, callEnd, blockEnd string
	between                             string // between calls, and between results
	before                              func(c Call, index int) string
	after                               func(c Call) string
	fence                               string // after the arguments
}

// write writes a block of calls, if there are any; first is the number of the first in the
// conversation.
func (j *jsonCalls) write(w *writer, calls []Call, first int) {
	if len(calls) == 0 {
		return
	}
	w.mark(j.block)
	for i, c := range calls {
		if i > 0 {
			w.text(j.between)
		}
		arguments := cmp.Or(strings.TrimSpace(c.Arguments), "{}")
		w.mark(j.call)
		w.text(j.before(c, first+i))
		w.mark(j.sep)
		w.text(j.after(c) + arguments + j.fence)
		w.mark(j.callEnd)
	}
	w.mark(j.blockEnd)
}
