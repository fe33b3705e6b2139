// Package pull fetches model files: GGUF files of a repository of Hugging Face or
// of one of its mirrors, or from an address, with all parts of a split set.
//
// A file is fetched in ranges over several connections into NAME.part; beside it
// NAME.part.json says what is there, so that a pull that was stopped goes on where
// it was. Only a file whose size and, where the source gives one, SHA-256 are right
// gets its name. Every wait is bounded: connecting, the header of an answer, a body
// that stalls, and the pauses between attempts.
package pull

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ringmaster/internal/pull/partial"
	"ringmaster/internal/units"
)

// ErrInput is wrapped by the errors that the caller's input causes: a reference that
// cannot be read, a repository or file that does not exist, a directory without room.
// Trying again does not help.
var ErrInput = errors.New("pull")

func inputError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInput, fmt.Sprintf(format, args...))
}

// DefaultEndpoint is the hub that hf: refers to.
const DefaultEndpoint = "https://huggingface.co"

// The limits of Options.Connections.
const (
	DefaultConnections = 8
	MostConnections    = 32
)

// Options are how to fetch. The zero value fetches into the current directory.
type Options struct {
	Dir         string   // where the files go; it is created if it is not there; "": the current directory
	Connections int      // ranges of a file that are fetched at once, 1 to MostConnections; 0: DefaultConnections
	Token       string   // of the hub, for repositories that need one; sent to Endpoint only
	Endpoint    string   // hub or mirror; "": DefaultEndpoint
	Report      Reporter // nil: nothing is reported
}

// Reporter is told about the work. Add and Say may be called from several goroutines.
type Reporter interface {
	// Begin starts a phase of total bytes, of which done were there before.
	Begin(phase string, total, done int64)
	// Add counts bytes of the phase; n is negative when some must be fetched again.
	Add(n int64)
	// End ends the phase.
	End()
	// Say tells something worth knowing, such as another attempt.
	Say(line string)
}

// puller is one Pull with its limits, which tests shorten.
type puller struct {
	Options
	client     *http.Client
	chunk      int64         // bytes of a range
	stall      time.Duration // a body that brings less than leastBytes in that time has stalled
	firstPause time.Duration // before the second attempt; doubled up to mostPause
	mostPause  time.Duration
	mostAsked  time.Duration // the longest Retry-After that is obeyed
	attempts   int           // in a row that bring nothing
	saveEvery  time.Duration
	free       func(dir string) (uint64, error)
}

// leastBytes is what makes an attempt count as progress, and a body as alive.
const leastBytes = 16 << 10

func newPuller(o Options) (*puller, error) {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	if o.Connections == 0 {
		o.Connections = DefaultConnections
	}
	if o.Connections < 1 || o.Connections > MostConnections {
		return nil, inputError("%d connections: want 1 to %d", o.Connections, MostConnections)
	}
	if o.Dir == "" {
		o.Dir = "."
	}
	if o.Report == nil {
		o.Report = silent{}
	}
	p := &puller{
		Options: o, chunk: 64 << 20, stall: 30 * time.Second,
		firstPause: time.Second / 2, mostPause: 30 * time.Second, mostAsked: 2 * time.Minute, attempts: 8,
		saveEvery: 5 * time.Second, free: partial.Free,
	}
	p.client = newClient(p.stall, o.Connections)
	return p, p.checkEndpoint()
}

// Pull fetches what ref names and returns the paths of the files in the order of
// their parts; the first is what a server is started with. ref is
//
//	hf:OWNER/REPO[@REVISION][:QUANT]
//	https://HOST/PATH.gguf
//
// QUANT is the part of the names that tells the files of a repository apart, such as
// Q4_K_M, or the path of a file. Files that are there and right are not fetched.
func Pull(ctx context.Context, ref string, o Options) ([]string, error) {
	p, err := newPuller(o)
	if err != nil {
		return nil, err
	}
	return p.pull(ctx, ref)
}

func (p *puller) pull(ctx context.Context, ref string) ([]string, error) {
	defer p.client.CloseIdleConnections()
	src, err := parse(ref)
	if err != nil {
		return nil, err
	}
	files := src.parts()
	if src.repo != "" {
		if files, err = p.choose(ctx, src); err != nil {
			return nil, err
		}
	}
	if err := p.probeAll(ctx, files); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return nil, inputError("%v: choose another directory with --dir", err)
	}
	var paths []string
	for _, f := range files {
		f.path = filepath.Join(p.Dir, f.name)
		paths = append(paths, f.path)
	}
	missing, err := p.checkPresent(ctx, files)
	if err != nil {
		return nil, err
	}
	if err := p.checkRoom(missing, func(f *file) int64 { return partial.Lacking(f.path, f.size) }); err != nil {
		return nil, err // before anything is made for what a server only says that it has
	}
	for _, f := range missing {
		if err := f.open(p); err != nil {
			return nil, errors.Join(err, closeAll(missing))
		}
	}
	return paths, errors.Join(p.fetchAll(ctx, missing), closeAll(missing))
}

// fetchAll checks the room and fetches the files one after the other.
func (p *puller) fetchAll(ctx context.Context, files []*file) error {
	var total, have int64
	for _, f := range files {
		total += f.size
		have += f.part.Done()
	}
	if len(files) == 0 {
		return nil
	}
	if err := p.checkRoom(files, func(f *file) int64 { return f.size - min(f.part.Done(), f.size) }); err != nil {
		return err
	}
	p.Report.Begin("fetch", total, have)
	for _, f := range files {
		if err := f.fetch(ctx, p); err != nil {
			p.Report.End()
			return err
		}
	}
	p.Report.End()
	p.Report.Begin("check", total, 0)
	defer p.Report.End()
	for _, f := range files {
		if err := f.finish(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// checkRoom compares the free space with what the files lack.
func (p *puller) checkRoom(files []*file, lacking func(*file) int64) error {
	var needed uint64 // at most mostParts times partial.MostBytes
	for _, f := range files {
		needed += uint64(lacking(f))
	}
	if needed == 0 {
		return nil
	}
	room, err := p.free(p.Dir)
	if err != nil {
		return fmt.Errorf("pull: free space of %s: %w", p.Dir, err)
	}
	if needed > room {
		return inputError("%s needs %s more, and %s are free: free %s or choose another directory with --dir",
			p.Dir, units.Bytes(needed), units.Bytes(room), units.Bytes(needed-room))
	}
	return nil
}

// probeAll asks the servers about all files, some at a time.
func (p *puller) probeAll(ctx context.Context, files []*file) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	places := make(chan struct{}, p.Connections)
	var all sync.WaitGroup
	for _, f := range files {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			if err := p.probe(ctx, f); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// checkPresent returns the files that are not there. One that is there and differs
// is an error: it may be somebody's work.
func (p *puller) checkPresent(ctx context.Context, files []*file) (missing []*file, err error) {
	var present []*file
	var total int64
	for _, f := range files {
		info, err := os.Stat(f.path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			if _, err := os.Lstat(f.path); err == nil {
				return nil, inputError("%s is a symbolic link that leads nowhere: remove it or choose another directory with --dir", f.path)
			}
			missing = append(missing, f)
			continue
		case err != nil:
			return nil, inputError("%v", err)
		case !info.Mode().IsRegular():
			return nil, inputError("%s is there and is no file: move it away or choose another directory with --dir", f.path)
		case info.Size() != f.size:
			return nil, inputError("%s is there with %d bytes, and the source's has %d: remove it or choose another directory with --dir", f.path, info.Size(), f.size)
		}
		present = append(present, f)
		total += f.size
	}
	if len(present) == 0 {
		return missing, nil
	}
	p.Report.Begin("check", total, 0)
	defer p.Report.End()
	for _, f := range present {
		sum, err := partial.Hash(ctx, f.path, p.Report.Add)
		if err != nil {
			return nil, fmt.Errorf("pull: %w", err)
		}
		if f.sha256 != "" && sum != f.sha256 {
			return nil, inputError("%s is there, and its SHA-256 is %s, not %s: remove it or choose another directory with --dir", f.path, sum, f.sha256)
		}
		p.Report.Say(f.path + " is there already")
	}
	return missing, nil
}

// silent reports nothing.
type silent struct{}

func (silent) Begin(string, int64, int64) {}
func (silent) Add(int64)                  {}
func (silent) End()                       {}
func (silent) Say(string)                 {}
