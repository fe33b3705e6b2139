package fanout

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"ringmaster/distributed"
	"ringmaster/internal/pull"
	"ringmaster/internal/pull/partial"
	"ringmaster/internal/units"
)

// rank is the files of one rank, and their progress.
type rank struct {
	manifest
	files  []*file
	report pull.Reporter

	missing []block // blocks that some rank lacks, the same on all ranks; set by look
	moves   bool    // a phase of the report has begun
}

// file is one file on this rank: complete, or arriving.
type file struct {
	entry
	path   string
	whole  *os.File      // on rank 0, and if the file existed already; otherwise nil
	part   *partial.File // otherwise
	sum    string        // SHA-256 in hex, set by hash
	named  bool          // compared, and has its name
	closed bool
}

// block is a block of a file.
type block struct {
	file, at int   // index of the file, and of the block in it
	length   int64 // bytes
}

// newSource opens the files of rank 0.
func newSource(m manifest, paths []string, report pull.Reporter) (*rank, error) {
	r := &rank{manifest: m, report: report}
	for i, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.files = append(r.files, &file{entry: m.Files[i], path: p, whole: f})
	}
	return r, nil
}

// newTarget opens the files in dir, and checks that there is room for the rest.
func newTarget(m manifest, dir string, report pull.Reporter) (*rank, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: choose another directory with --dir", err)
	}
	r := &rank{manifest: m, report: report}
	least, needed := int64(0), int64(0)
	for _, e := range m.Files {
		if path := filepath.Join(dir, e.Name); !exists(path) {
			least += partial.Lacking(path, e.Size)
		}
	}
	if err := checkRoom(dir, least); err != nil {
		return nil, err // before making anything that rank 0 only announces
	}
	for _, e := range m.Files {
		f := &file{entry: e, path: filepath.Join(dir, e.Name)}
		if err := f.open(m.Block, report); err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.files = append(r.files, f)
		if f.part != nil {
			needed += f.Size - f.part.Done()
		}
	}
	if err := checkRoom(dir, needed); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// exists reports whether something has a name already, even if only a link.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// checkRoom compares the free space of a directory with what it needs.
func checkRoom(dir string, needed int64) error {
	room, err := partial.Free(dir)
	if err == nil && uint64(needed) > room {
		err = fmt.Errorf("%s needs %s more, but only %s are free: free some space or choose another directory with --dir",
			dir, units.Bytes(needed), units.Bytes(room))
	}
	return err
}

// open opens the complete file if it exists, otherwise its partial file.
func (f *file) open(chunk int64, report pull.Reporter) error {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, os.ErrNotExist) && exists(f.path):
		return fmt.Errorf("%s is a symbolic link that leads nowhere: remove it or choose another directory with --dir", f.path)
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() != f.Size:
		return fmt.Errorf("%s exists but differs (%d bytes; rank 0 has %d): move it away or choose another directory with --dir", f.path, info.Size(), f.Size)
	default:
		f.whole, err = os.Open(f.path)
		return err
	}
	part, dropped, err := partial.Open(f.path, partial.Identity{Size: f.Size, Tag: f.Tag, Chunk: chunk})
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if f.part = part; dropped {
		report.Say(f.path + ".part does not match rank 0's file; fetching it from the beginning")
	}
	return nil
}

// has reports whether this rank has a block.
func (r *rank) has(b block) bool {
	f := r.files[b.file]
	return f.whole != nil || f.part.Have(b.at) == b.length
}

// read reads a block into p, [b.length].
func (r *rank) read(b block, p []byte) error {
	f := r.files[b.file]
	if f.whole == nil {
		return fmt.Errorf("%s: block %d must be sent but is missing", f.path, b.at)
	}
	if _, err := f.whole.ReadAt(p, int64(b.at)*r.Block); err != nil {
		return fmt.Errorf("%s, block %d: %w: has the file changed meanwhile?", f.path, b.at, err)
	}
	return nil
}

// write writes a block p, [b.length], that this rank lacks.
func (r *rank) write(b block, p []byte) error {
	f := r.files[b.file]
	f.part.Drop(b.at)
	if err := f.part.Append(b.at, p); err != nil {
		return fmt.Errorf("%w: free some space and run the same command again to resume", err)
	}
	r.report.Add(b.length)
	return nil
}

// do does one piece of work with the other ranks of the group.
func (r *rank) do(ctx context.Context, g *distributed.Group, o order) error {
	switch {
	case o.Op == "look":
		return r.look(ctx, g)
	case o.Op == "send" && 0 <= o.From && o.From <= o.To && o.To <= len(r.missing):
		err := r.send(ctx, g, r.missing[o.From:o.To])
		return errors.Join(err, r.save())
	case o.Op == "hash" && 0 <= o.File && o.File < len(r.files):
		return r.hash(ctx, o.File)
	case o.Op == "finish" && 0 <= o.File && o.File < len(r.files):
		return r.finish(ctx, g, o.File)
	}
	return fmt.Errorf("rank 0 orders %+v, which this build does not know", o)
}

// look exchanges which blocks the ranks have. Bit i of a rank's part, the least
// significant first, says whether it has block i of all files.
func (r *rank) look(ctx context.Context, g *distributed.Group) error {
	var all []block
	for i, f := range r.files {
		for at := range int((f.Size + r.Block - 1) / r.Block) {
			all = append(all, block{i, at, min(r.Block, f.Size-int64(at)*r.Block)})
		}
	}
	own := make([]byte, (len(all)+7)/8)
	here, lacking := int64(0), int64(0)
	for i, b := range all {
		if r.has(b) {
			own[i/8] |= 1 << (i % 8)
			here += b.length
		} else {
			lacking += b.length
		}
	}
	of := make([]byte, len(own)*g.Size()) // [ranks][len(own)]
	if err := g.AllGather(ctx, of, own); err != nil {
		return err
	}
	r.missing = r.missing[:0]
	travel := int64(0)
	for i, b := range all {
		for rank := range g.Size() {
			if of[rank*len(own)+i/8]>>(i%8)&1 == 0 {
				r.missing = append(r.missing, b)
				travel += b.length
				break
			}
		}
	}
	if g.Rank() == 0 {
		r.begin("send", travel, 0)
	} else {
		r.begin("fetch", here+lacking, here)
	}
	return nil
}

// begin begins a phase of the report and ends the one before.
func (r *rank) begin(phase string, total, done int64) {
	r.end()
	r.moves = true
	r.report.Begin(phase, total, done)
}

func (r *rank) end() {
	if r.moves {
		r.report.End()
		r.moves = false
	}
}

// hash computes the SHA-256 of a file.
func (r *rank) hash(ctx context.Context, i int) (err error) {
	if i == 0 {
		total := int64(0)
		for _, f := range r.files {
			total += f.Size
		}
		r.begin("check", total, 0)
	}
	f := r.files[i]
	if f.part != nil {
		f.sum, err = f.part.Hash(ctx, r.report.Add)
	} else {
		f.sum, err = partial.Hash(ctx, f.path, r.report.Add)
	}
	return err
}

// finish compares the SHA-256 of a file with rank 0's, and gives the file its name. Every
// rank does so for itself: a rank with a damaged copy removes it and fails.
func (r *rank) finish(ctx context.Context, g *distributed.Group, i int) error {
	f := r.files[i]
	own, err := hex.DecodeString(f.sum)
	if err != nil {
		return err
	}
	if len(own) == 0 {
		return fmt.Errorf("%s must be finished, but it was not checked", f.path)
	}
	first := append([]byte{}, own...)
	if err := g.Broadcast(ctx, first, 0); err != nil {
		return err
	}
	if want := hex.EncodeToString(first); want != f.sum {
		if f.part == nil {
			return fmt.Errorf("%s exists but differs (SHA-256 %s; rank 0 has %s): move it away or choose another directory with --dir", f.path, f.sum, want)
		}
		return errors.Join(fmt.Errorf("%s has SHA-256 %s, but rank 0 has %s: it was damaged on the way, or rank 0's file has changed; it was removed, so run the same command again", f.path, f.sum, want),
			f.part.Remove())
	}
	if f.part != nil {
		if err := f.part.Finish(); err != nil {
			return err
		}
	}
	f.named = true
	if i == len(r.files)-1 {
		r.end()
	}
	return nil
}

// finished reports whether all files are complete, compared, and have their names.
func (r *rank) finished() bool {
	return !slices.ContainsFunc(r.files, func(f *file) bool { return !f.named })
}

func (r *rank) paths() (out []string) {
	for _, f := range r.files {
		out = append(out, f.path)
	}
	return out
}

// save records which blocks have arrived.
func (r *rank) save() (err error) {
	for _, f := range r.files {
		if f.part != nil && !f.named {
			err = errors.Join(err, f.part.Save())
		}
	}
	return err
}

// close closes all files.
func (r *rank) close() (err error) {
	r.end()
	for _, f := range r.files {
		if f.closed {
			continue
		}
		f.closed = true
		if f.whole != nil {
			err = errors.Join(err, f.whole.Close())
		}
		if f.part != nil {
			err = errors.Join(err, f.part.Close())
		}
	}
	return err
}
