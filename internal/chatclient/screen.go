package chatclient

import (
	"fmt"
	"io"
	"strings"

	"github.com/rivo/uniseg"
)

// screen shows an answer while it grows. It shows a block of Markdown as it is written
// until it is complete, then erases its rows and formats it. A block that outgrows the
// screen stays as it was written, since rows that have scrolled away cannot be erased.
type screen struct {
	w             io.Writer
	width, height int
	styled        bool // false: everything is shown as it is written
	err           error

	block   strings.Builder // source of the current block
	line    string          // its last line, incomplete
	blank   bool            // the last line of block is empty
	fence   string          // fence that ends the current code; "" outside of code
	sent    int             // bytes of line that are already shown, in code
	rows    int             // rows of the block on the screen, above the cursor's
	column  int             // column of the cursor
	frozen  bool            // the block has outgrown the screen
	shown   bool            // a block has been formatted, so the next one begins after an empty line
	thought bool            // the reasoning has not ended
}

func (s *screen) put(text string) {
	if s.err == nil && text != "" {
		_, s.err = io.WriteString(s.w, text)
	}
}

// Reason shows a piece of reasoning, dimmed.
func (s *screen) Reason(text string) {
	if !s.styled {
		if !s.thought {
			s.put("[reasoning]\n")
		}
		s.put(text)
	} else {
		s.put(paint(text, dim))
	}
	s.thought = true
}

// endReasoning separates the answer from the reasoning before it.
func (s *screen) endReasoning() {
	if !s.thought {
		return
	}
	s.thought = false
	if s.styled {
		s.put("\n\n")
	} else {
		s.put("\n[answer]\n")
	}
}

// Text shows a piece of the answer.
func (s *screen) Text(text string) {
	if text == "" {
		return
	}
	s.endReasoning()
	if !s.styled {
		s.put(text)
		return
	}
	for len(text) > 0 {
		piece, rest, ended := strings.Cut(text, "\n")
		s.line += piece
		if s.fence != "" {
			s.showCode()
		} else {
			s.begin()
			s.live(piece)
		}
		if ended {
			s.endLine()
		}
		text = rest
	}
}

// showCode shows the new part of a line of code, unless it may be the fence that ends the
// code.
func (s *screen) showCode() {
	if strings.Trim(strings.TrimSpace(s.line), s.fence[:1]) == "" {
		return
	}
	s.put(paint(strings.ReplaceAll(s.line[s.sent:], "\t", "    "), code))
	s.sent = len(s.line)
}

// begin ends the block before an incomplete line if that line starts a new block.
func (s *screen) begin() {
	if !s.blank || strings.TrimSpace(s.line) == "" {
		return
	}
	if (s.line[0] == ' ' || s.line[0] == '\t') && isList(s.block.String()) {
		s.blank = false // a further paragraph of an item
		return
	}
	s.set()
}

// isList reports whether a block ends with an item of a list.
func isList(block string) bool {
	lines := strings.Split(strings.TrimRight(block, "\n"), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		t := lines[i]
		if t == "" || t[0] == ' ' || t[0] == '\t' {
			continue // belongs to the item above
		}
		digits := strings.TrimLeft(t, "0123456789")
		return strings.ContainsRune("-*+", rune(t[0])) || len(digits) < len(t) && digits != "" && strings.ContainsRune(".)", rune(digits[0]))
	}
	return false
}

// live shows a piece of the current block as it is written, and counts its rows.
func (s *screen) live(piece string) {
	if s.shown && s.block.Len() == 0 && s.column == 0 && s.rows == 0 && piece != "" {
		s.put("\n")
		s.shown = false
	}
	state := -1
	for len(piece) > 0 {
		var cluster string
		var w int
		cluster, piece, w, state = uniseg.FirstGraphemeClusterInString(piece, state)
		if cluster == "\t" {
			cluster, w = " ", 1
		}
		if s.column+w > s.width-1 { // never in the last column, because terminals differ there
			s.newRow()
		}
		s.put(cluster)
		s.column += w
	}
}

func (s *screen) newRow() {
	s.put("\n")
	s.rows++
	s.column = 0
	s.frozen = s.frozen || s.rows >= s.height-1
}

// endLine moves the complete line into the block.
func (s *screen) endLine() {
	line := s.line
	s.line = ""
	if s.fence != "" {
		if s.closes(line) {
			s.fence, s.shown, s.column = "", true, 0
		} else {
			s.put(paint(line[s.sent:], code) + "\n")
		}
		s.sent = 0
		return
	}
	if f := fenceOf(line); f != "" {
		s.openFence(line, f)
		return
	}
	if strings.TrimSpace(line) == "" {
		if s.block.Len() > 0 {
			s.block.WriteString("\n")
			s.blank = true
		} else {
			s.column = 0
		}
		if s.rows > 0 || s.column > 0 {
			s.newRow()
		}
		return
	}
	s.block.WriteString(line + "\n")
	s.blank = false
	s.newRow()
}

// closes reports whether a line ends the current code.
func (s *screen) closes(line string) bool {
	t := strings.TrimSpace(line)
	return strings.HasPrefix(t, s.fence) && strings.Trim(t, s.fence[:1]) == ""
}

// fenceOf returns the fence that a line opens, "" if it opens none.
func fenceOf(line string) string {
	t := strings.TrimLeft(line, " ")
	if len(line)-len(t) > 3 {
		return "" // of an item, or code by indentation: formatted with its block
	}
	for _, c := range []string{"`", "~"} {
		if n := len(t) - len(strings.TrimLeft(t, c)); n >= 3 && (c == "~" || !strings.Contains(t[n:], c)) {
			return strings.Repeat(c, n)
		}
	}
	return ""
}

// openFence sets what is before the code; its lines are shown as they come.
func (s *screen) openFence(line, fence string) {
	if s.frozen {
		s.newRow()
	}
	s.set()
	if s.shown {
		s.put("\n")
	}
	language := strings.TrimSpace(strings.TrimLeft(strings.TrimLeft(line, " "), fence[:1]))
	if language != "" {
		s.put(paint(language, dim) + "\n")
	}
	s.fence, s.shown, s.column, s.rows = fence, false, 0, 0
}

// set erases the current block, with the incomplete line below it, and formats it; the
// caller shows the incomplete line again.
func (s *screen) set() {
	source := s.block.String()
	s.block.Reset()
	s.blank = false
	frozen := s.frozen
	s.frozen = false
	if frozen {
		if s.column > 0 {
			s.put("\n")
		}
		s.rows, s.column, s.shown = 0, 0, false
		return
	}
	if s.rows > 0 {
		s.put(fmt.Sprintf("\r\x1b[%dA\x1b[J", s.rows))
	} else if s.column > 0 {
		s.put("\r\x1b[J")
	}
	s.rows, s.column = 0, 0
	if set := render(source, s.width-1); set != "" {
		s.put(set)
		s.shown = true
	}
}

// End sets what is left of the answer. The cursor is then at the start of a row.
func (s *screen) End() error {
	s.endReasoning()
	switch {
	case !s.styled:
		s.put("\n")
	case s.fence != "":
		if s.line != "" && !s.closes(s.line) {
			s.put(paint(s.line[s.sent:], code) + "\n")
		}
	default:
		s.block.WriteString(s.line)
		s.set()
	}
	s.line, s.fence, s.shown, s.thought, s.column, s.rows, s.sent = "", "", false, false, 0, 0, 0
	return s.err
}
