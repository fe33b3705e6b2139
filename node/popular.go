package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/bits"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// observed is a model that counts how often each expert is chosen, [layers][experts].
type observed interface{ Chosen() [][]uint64 }

// popularity is how often experts were chosen, over all models that a leader loaded and
// what a file has of earlier runs.
type popularity struct {
	path  string // empty: not kept
	model string // the fingerprint of its file

	mu     sync.Mutex // guards before and now
	before [][]uint64
	now    observed // nil before the first model
	saving atomic.Bool
}

// popularityFile is the form of the file.
type popularityFile struct {
	Model  string     `json:"model"`
	Chosen [][]uint64 `json:"chosen"` // [layers][experts]
}

// keptBits bounds a count of the file, so that sums and products of counts do not overflow.
const keptBits = 32

// mostPopularity bounds the file: 128 layers of 512 experts.
const mostPopularity = 128 * 512 * 21

// diskWait bounds the waits for the file when the node starts and stops.
const diskWait = 2 * time.Second

// close saves what was counted, unless the disk hangs.
func (p *popularity) close() {
	select {
	case <-p.save():
	case <-time.After(diskWait):
	}
}

// saveEvery is how much of the counts a crash loses.
const saveEvery = 10 * time.Minute

// KeepChosen writes how often experts were chosen to Options.Popularity until ctx ends.
func (n *Node) KeepChosen(ctx context.Context) {
	t := time.NewTicker(saveEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			n.popular.save()
		}
	}
}

// observe counts what m chooses from now on.
func (p *popularity) observe(m observed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.now = p.sum(), m
}

// counts returns all choices so far.
func (p *popularity) counts() [][]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum()
}

// sum is counts for callers that hold mu.
func (p *popularity) sum() [][]uint64 {
	if p.now == nil {
		return p.before
	}
	out := p.now.Chosen()
	for l, counts := range p.before {
		if l >= len(out) {
			out = append(out, slices.Clone(counts))
			continue
		}
		for e := range min(len(counts), len(out[l])) {
			out[l][e] += counts[e]
		}
	}
	return out
}

// load reads the file, if there is one for this model; what another chose says nothing.
func (p *popularity) load(path, model string) {
	p.path, p.model = path, model
	if path == "" {
		return
	}
	chosen, err := within(diskWait, func() ([][]uint64, error) { return readPopularity(path, model) })
	if err != nil {
		slog.Warn("how often experts were chosen in earlier runs is unknown", "error", err)
		return
	}
	p.before = chosen
}

// within returns what read does, or an error after a wait: a disk may hang, and the node
// starts without the file.
func within(wait time.Duration, read func() ([][]uint64, error)) (chosen [][]uint64, err error) {
	done := make(chan struct{})
	var late [][]uint64 // only read after done
	var lateErr error
	go func() {
		defer close(done)
		late, lateErr = read()
	}()
	select {
	case <-done:
		return late, lateErr
	case <-time.After(wait):
		return nil, fmt.Errorf("the disk of --cache-dir has not answered in %v", wait)
	}
}

// readPopularity returns the counts of the file, none if it is missing or of another model.
func readPopularity(path, model string) ([][]uint64, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostPopularity+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostPopularity {
		return nil, fmt.Errorf("%s has more than %d bytes", path, mostPopularity)
	}
	var f popularityFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Model != model {
		return nil, nil
	}
	for _, counts := range f.Chosen {
		for e := range counts {
			counts[e] = min(counts[e], 1<<keptBits)
		}
	}
	return f.Chosen, nil
}

// save writes the file, in place of the old one, in the background, because a disk may hang
// and plans and stops must not wait for it. done is closed when it is written, or at once if an
// earlier save has not ended.
func (p *popularity) save() (done <-chan struct{}) {
	written := make(chan struct{})
	all := p.counts()
	if p.path == "" || len(all) == 0 || p.saving.Swap(true) {
		close(written)
		return written
	}
	go func() {
		defer close(written)
		defer p.saving.Store(false)
		if err := writePopularity(p.path, popularityFile{p.model, bounded(all)}); err != nil {
			slog.Warn("how often experts were chosen is not kept for the next start", "error", err)
		}
	}()
	return written
}

// bounded is counts in keptBits.
func bounded(counts [][]uint64) [][]uint64 {
	most, out := uint64(0), make([][]uint64, len(counts))
	for l := range counts {
		out[l] = slices.Clone(counts[l])
		for _, n := range out[l] {
			most = max(most, n)
		}
	}
	if shift := bits.Len64(most) - keptBits; shift > 0 {
		for _, layer := range out {
			for e := range layer {
				layer[e] >>= shift
			}
		}
	}
	return out
}

func writePopularity(path string, f popularityFile) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
