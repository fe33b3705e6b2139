// Package logits evaluates a sequence of token ids and writes the logits at each position.
package logits

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"

	"ringmaster/internal/safetext"
	"ringmaster/model"
)

// Write evaluates ids as one sequence, in steps of at most batch tokens, and writes the
// logits at each position: little-endian float32, a row of the size of the vocabulary.
func Write(ctx context.Context, m model.Model, ids []int32, batch int, w io.Writer) error {
	for pos := 0; pos < len(ids); {
		n := min(batch, len(ids)-pos)
		step := model.Step{Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: ids[pos : pos+n], Want: model.WantAll}}}
		rows, err := m.Forward(ctx, step)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := binary.Write(w, binary.LittleEndian, row); err != nil {
				return fmt.Errorf("writing the logits: %w", err)
			}
		}
		m.Commit(step)
		pos += n
	}
	return nil
}

// mostIDs bounds the ids of a file before the context is known, because no model has that
// many positions.
const mostIDs = 1 << 22

// ReadIDs reads token ids separated by whitespace.
func ReadIDs(path string) ([]int32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ids []int32
	s := bufio.NewScanner(f)
	s.Split(bufio.ScanWords)
	for s.Scan() {
		id, err := strconv.ParseInt(s.Text(), 10, 32)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("%s: token %d is %q; expected an id", path, len(ids), safetext.Line(s.Text(), safetext.Evidence))
		}
		if len(ids) == mostIDs {
			return nil, fmt.Errorf("%s: more than %d token ids; no context holds as many", path, mostIDs)
		}
		ids = append(ids, int32(id))
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s: no token ids", path)
	}
	return ids, nil
}
