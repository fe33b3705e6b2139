package run

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ringmaster/engine/diskcache"
	"ringmaster/model/chat"
)

// The file of a journal:
//
//	8 bytes  "RMREPLY2", the format and its version
//	u32      length of the name of the model, little-endian, and the name
//	records  u32 length, u32 CRC-32C, JSON (record)
//
// Reading stops at a damaged or short record, because a crash may have cut the last one. A
// file of another model or format is replaced.
const journalMagic = "RMREPLY2"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is a replay in the file.
type record struct {
	Scope     []byte       `json:"scope,omitempty"`
	ID        string       `json:"id"`
	Reasoning string       `json:"reasoning,omitempty"`
	Content   string       `json:"content,omitempty"`
	Calls     []recordCall `json:"calls,omitempty"`
	Thought   []int32      `json:"thought"` // null is not the same as []
	Tokens    []int32      `json:"tokens"`
}

type recordCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (p *replay) record() record {
	r := record{[]byte(p.scope), p.id, p.reasoning, p.content, nil, p.thought, p.tokens}
	for _, c := range p.calls {
		r.Calls = append(r.Calls, recordCall{c.ID, c.Name, c.Arguments})
	}
	return r
}

func (r record) replay() *replay {
	p := &replay{string(r.Scope), r.ID, r.Reasoning, r.Content, nil, r.Thought, r.Tokens}
	for _, c := range r.Calls {
		p.calls = append(p.calls, chat.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return p
}

// read returns the answers in the file, up to the first damaged record.
func (j *journal) read() (list []*replay, err error) {
	f, err := j.files.Open(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) { // the latter on FreeBSD
		j.log.Warn("answers with calls: the file is a link, which is not followed; its answers are ignored", "file", j.path)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := diskcache.Trusted(j.path, f); err != nil {
		j.log.Warn("answers with calls: the file is not trusted; its answers are ignored", "file", j.path, "error", err)
		return nil, nil
	}
	in := bufio.NewReader(f)
	head := make([]byte, len(j.head()))
	if _, err := io.ReadFull(in, head); err != nil || string(head) != string(j.head()) {
		j.log.Info("answers with calls: the file is of another model or format; its answers are ignored", "file", j.path)
		return nil, nil
	}
	for {
		p, err := j.readRecord(in)
		switch {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			j.log.Warn("answers with calls: the file is damaged; the answers behind the damage are lost", "file", j.path, "answers", len(list), "error", err)
			return list, nil
		}
		list = append(list, p)
	}
}

// readRecord reads the next record; io.EOF after the last.
func (j *journal) readRecord(in *bufio.Reader) (*replay, error) {
	var head [8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err // io.EOF only between records
	}
	length := binary.LittleEndian.Uint32(head[:])
	if int64(length) > j.most {
		return nil, fmt.Errorf("a record of %d bytes", length)
	}
	text, err := io.ReadAll(io.LimitReader(in, int64(length)))
	if err != nil {
		return nil, err
	}
	if len(text) < int(length) {
		return nil, io.ErrUnexpectedEOF
	}
	if binary.LittleEndian.Uint32(head[4:]) != crc32.Checksum(text, castagnoli) {
		return nil, errors.New("the checksum of a record does not match")
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	for _, ids := range [][]int32{r.Thought, r.Tokens} {
		for _, id := range ids {
			if id < 0 || int(id) >= j.vocabulary {
				return nil, fmt.Errorf("token %d of %d", id, j.vocabulary)
			}
		}
	}
	return r.replay(), nil
}

// head returns the header of the file.
func (j *journal) head() []byte {
	return append(binary.LittleEndian.AppendUint32([]byte(journalMagic), uint32(len(j.model))), j.model...)
}

// encode returns the record of an answer, nil if it is too long for the file.
func (j *journal) encode(p *replay) []byte {
	text, err := json.Marshal(p.record())
	if err != nil || int64(len(text)) > j.most {
		return nil
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	return append(binary.LittleEndian.AppendUint32(b, crc32.Checksum(text, castagnoli)), text...)
}

// create replaces the file with a new one that has the answers of list. It leaves room
// for more: where the JSON is too long it omits the least recently used.
func (j *journal) create(list []*replay) (f diskcache.File, size int64, err error) {
	room := j.most - j.most/4
	first := len(list)
	for ; first > 0; first-- {
		if room -= int64(len(j.encode(list[first-1]))); room < 0 {
			break
		}
	}
	next := j.path + ".partial"
	f, err = j.files.Create(next)
	if err != nil {
		return nil, 0, err
	}
	out := bufio.NewWriter(f)
	n, err := out.Write(j.head())
	size = int64(n)
	for _, p := range list[first:] {
		if err != nil {
			break
		}
		n, err = out.Write(j.encode(p))
		size += int64(n)
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = j.files.Rename(next, j.path)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s: %w", filepath.Base(j.path), err), f.Close(), j.files.Remove(next))
	}
	return f, size, nil
}
