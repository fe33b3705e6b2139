package partial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stateVersion changes with the meaning of state.
const stateVersion = 1

// mostState bounds the file of a state; no model needs as much.
const mostState = 16 << 20

// state is the content of NAME.part.json, which describes NAME.part.
type state struct {
	Version int     `json:"version"`
	Size    int64   `json:"size"`
	SHA256  string  `json:"sha256,omitempty"`
	Tag     string  `json:"etag,omitempty"` // of a file without SHA-256
	Chunk   int64   `json:"chunk"`          // bytes of each range but the last
	Have    []int64 `json:"have"`           // how many of the first bytes of each range are on the disk
}

// newState returns the state of a file without any data.
func newState(id Identity) state {
	s := state{Version: stateVersion, Size: id.Size, SHA256: id.SHA256, Chunk: id.Chunk}
	if id.SHA256 == "" {
		s.Tag = id.Tag
	}
	s.Have = make([]int64, (id.Size+id.Chunk-1)/id.Chunk)
	return s
}

// length returns the bytes of a range.
func (s *state) length(i int) int64 { return min(s.Chunk, s.Size-int64(i)*s.Chunk) }

// fits reports whether an old state belongs to the file to fetch.
func (s *state) fits(fresh state) bool {
	if s.Version != fresh.Version || s.Size != fresh.Size || s.SHA256 != fresh.SHA256 || s.Tag != fresh.Tag ||
		s.Chunk != fresh.Chunk || len(s.Have) != len(fresh.Have) {
		return false
	}
	if s.SHA256 == "" && s.Tag == "" {
		return false // nothing shows that the file is still the same
	}
	for i, n := range s.Have {
		if n < 0 || n > s.length(i) {
			return false
		}
	}
	return true
}

// readState reads a state; an error says why it cannot be used.
func readState(path string) (s state, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return s, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return s, errors.Join(fmt.Errorf("%s is not a file", path), err)
	}
	if err := json.NewDecoder(io.LimitReader(f, mostState)).Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// write replaces the state's file atomically.
func (s *state) write(path string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // does not follow links
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	return os.Rename(path+".new", path)
}
