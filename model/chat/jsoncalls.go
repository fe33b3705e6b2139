package chat

import "strings"

// jsonCalls is a markup in which a call is a name and a JSON object between
// markers:
//
//	BLOCK CALL before SEP after ARGUMENTS fence CALLEND ... BLOCKEND
type jsonCalls struct {
	block, call, sep, callEnd, blockEnd string
	between                             string // between calls
	before                              func(c Call, index int) string
	after                               func(c Call) string
	fence                               string // after the arguments
}

func (j *jsonCalls) write(w *writer, c Call) { j.writeIndexed(w, c, 0) }

// writeIndexed writes a call; index is its number in the conversation.
func (j *jsonCalls) writeIndexed(w *writer, c Call, index int) {
	arguments := strings.TrimSpace(c.Arguments)
	if arguments == "" {
		arguments = "{}"
	}
	w.mark(j.call)
	w.text(j.before(c, index))
	w.mark(j.sep)
	w.text(j.after(c) + arguments + j.fence)
	w.mark(j.callEnd)
}
