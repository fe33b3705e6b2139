package chatclient

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringmaster/internal/safetext"
)

// Bounds of the history.
const (
	maxHistory     = 1000    // lines
	maxHistoryFile = 4 << 20 // most bytes that are read
)

// History holds the typed lines, the last one first, in a file that only its owner can
// read. It implements the History of golang.org/x/term.
type History struct {
	path  string // "": in memory only
	lines []string
}

// HistoryPath returns the path of the history: in XDG_STATE_HOME, otherwise in
// .local/state of the home directory; "" if neither is known.
func HistoryPath(lookup func(string) (string, bool)) string {
	if dir, ok := lookup("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "ringmaster", "history")
	}
	if home, ok := lookup("HOME"); ok && filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "ringmaster", "history")
	}
	return ""
}

// OpenHistory reads a history; a missing file is an empty one.
func OpenHistory(path string) (*History, error) {
	h := &History{path: path}
	if path == "" {
		return h, nil
	}
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxHistoryFile {
		if _, err := f.Seek(-maxHistoryFile, 2); err != nil {
			return h, err
		}
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxHistoryFile+1)
	for lines.Scan() {
		if t := safetext.Drop(lines.Text()); t != "" {
			h.lines = append(h.lines, t)
		}
	}
	slices.Reverse(h.lines)
	h.lines = h.lines[:min(len(h.lines), maxHistory)]
	return h, lines.Err()
}

// Add remembers a line, unless it is empty or repeats the last one.
func (h *History) Add(line string) {
	if line = strings.TrimSpace(line); line == "" || len(h.lines) > 0 && h.lines[0] == line {
		return
	}
	h.lines = slices.Insert(h.lines, 0, line)
	h.lines = h.lines[:min(len(h.lines), maxHistory)]
}

// Len returns the number of lines.
func (h *History) Len() int { return len(h.lines) }

// At returns a line; 0 is the last one that was added.
func (h *History) At(i int) string { return h.lines[i] }

// Save writes the history to its file, completely or not at all.
func (h *History) Save() error {
	if h.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(h.path), "history-*") // of mode 0600
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, l := range slices.Backward(h.lines) {
		b.WriteString(l + "\n")
	}
	_, err = f.WriteString(b.String())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), h.path)
	}
	if err != nil {
		os.Remove(f.Name()) // a partial file is of no use
	}
	return err
}
