package chat

import "strings"

// writer collects the segments of a prompt.
type writer struct {
	segments []Segment
	texts    []string // since the last marker; they become one segment
	branches bool     // a branch is at the end of texts
	open     bool     // an answer has been opened and not closed
}

func (w *writer) mark(s string) {
	w.flush()
	w.segments = append(w.segments, Segment{Text: s, Marker: true})
}

func (w *writer) ids(ids []int32) {
	w.flush()
	w.segments = append(w.segments, Segment{IDs: ids})
}

// thought writes the reasoning of an answer and the marker that ends it.
func (w *writer) thought(m *Message) {
	if m.Thought != nil {
		w.ids(m.Thought)
		return
	}
	w.text(m.Reasoning)
	w.mark(markThinkEnd)
}

// branch puts a branch here. It has no effect directly after the first marker, because all
// prompts begin with that.
func (w *writer) branch() {
	if len(w.texts) > 0 {
		w.branches = true
	} else if n := len(w.segments); n > 1 {
		w.segments[n-1].Branch = true
	}
}

// flush makes a segment of the texts since the last marker.
func (w *writer) flush() {
	if len(w.texts) > 0 {
		w.segments = append(w.segments, Segment{Text: strings.Join(w.texts, ""), Branch: w.branches})
		w.texts, w.branches = nil, false
	}
}

func (w *writer) text(s string) {
	if s != "" {
		w.texts, w.branches = append(w.texts, s), false // a token may lie across the end of the text before it
	}
}

// markup writes a text of the format's own that may contain some markers.
func (w *writer) markup(s string, markers ...string) {
	for s != "" {
		at, found := len(s), ""
		for _, m := range markers {
			if i := strings.Index(s, m); i >= 0 && i < at {
				at, found = i, m
			}
		}
		w.text(s[:at])
		if found == "" {
			return
		}
		w.flush()
		w.segments = append(w.segments, Segment{Text: found, Marker: true, Plain: true})
		s = s[at+len(found):]
	}
}

func (w *writer) done() []Segment {
	w.flush()
	return w.segments
}
