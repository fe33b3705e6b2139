package chatclient

import (
	"strings"

	"github.com/rivo/uniseg"
)

// style is the look of text, a set of bits.
type style uint16

const (
	bold style = 1 << iota
	dim
	italic
	underline
	strike
	code
	red // the colours replace that of code
	green
	yellow
	blue
	magenta
)

// sgr has the parameter of the terminal's sequence for each bit, in order.
var sgr = []string{"1", "2", "3", "4", "9", "36", "31", "32", "33", "34", "35"}

// on returns the sequence that switches a style on, from none.
func (s style) on() string {
	var p []string
	for i, x := range sgr {
		if s&(1<<i) != 0 {
			p = append(p, x)
		}
	}
	if len(p) == 0 {
		return ""
	}
	return "\x1b[" + strings.Join(p, ";") + "m"
}

const plain = "\x1b[0m"

// paint returns text in a style.
func paint(text string, s style) string {
	if s == 0 || text == "" {
		return text
	}
	return s.on() + text + plain
}

// span is a run of text in one style. A "\n" in it is a hard line break.
type span struct {
	text  string
	style style
}

// word is a part of a line that is not broken, with its width in columns.
type word struct {
	spans []span
	width int
	end   bool // a hard line break follows
}

// words splits spans at spaces and hard breaks.
func words(spans []span) []word {
	var out []word
	var w word
	flush := func(end bool) {
		if w.end = end; end || len(w.spans) > 0 {
			out = append(out, w)
		}
		w = word{}
	}
	for _, s := range spans {
		for i, line := range strings.Split(s.text, "\n") {
			if i > 0 {
				flush(true)
			}
			for j, part := range strings.Split(line, " ") {
				if j > 0 {
					flush(false)
				}
				if part != "" {
					w.spans = append(w.spans, span{part, s.style})
					w.width += uniseg.StringWidth(part)
				}
			}
		}
	}
	flush(false)
	return out
}

// wrap arranges spans in lines of at most width columns. A longer word gets its own line,
// which the terminal breaks.
func wrap(spans []span, width int) []string {
	var lines []string
	var line strings.Builder
	used, last := 0, style(0)
	end := func() {
		lines = append(lines, line.String())
		line.Reset()
		used = 0
	}
	for _, w := range words(spans) {
		if used > 0 && used+1+w.width > width {
			end()
		}
		if used > 0 && w.width > 0 {
			line.WriteString(paint(" ", last&w.spans[0].style&(underline|strike)))
			used++
		}
		for _, s := range w.spans {
			line.WriteString(paint(s.text, s.style))
			last = s.style
		}
		used += w.width
		if w.end {
			end()
		}
	}
	if used > 0 || len(lines) == 0 {
		end()
	}
	return lines
}
