// Package pull fetches model files: GGUF files of a repository of Hugging Face or of one
// of its mirrors, or from an address, with all parts of a split set. See Pull.
//
// Several connections fetch ranges of a file into NAME.part. NAME.part.json records what
// has arrived, so that the next pull resumes one that was stopped. A file gets its name
// only if its size and, if the source gives one, its SHA-256 are right. Every wait is
// bounded: connecting, the header of an answer, a body that stalls, and the pauses
// between attempts.
package pull

import (
	"cmp"
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

// ErrInput is wrapped by the errors that the caller's input causes: an invalid reference,
// a repository or file that does not exist, a directory without room. Trying again does
// not help.
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

// Options say how to fetch. Report is required. The zero values of the other fields fetch
// into the current directory.
type Options struct {
	Dir         string // target directory, created if needed; "": the current directory
	Connections int    // ranges of a file that are fetched at once, 1 to MostConnections; 0: DefaultConnections
	Token       string // token of the hub, for repositories that need one; sent to Endpoint only
	Endpoint    string // hub or mirror; "": DefaultEndpoint
	DirSetting  string // what sets Dir, for errors; "": --dir
	Report      Reporter
}

// Reporter receives the progress. Add and Say must be safe for concurrent use.
type Reporter interface {
	// Begin starts a phase of total bytes; done of them are already present.
	Begin(phase string, total, done int64)
	// Add counts bytes of the phase; n is negative when some must be fetched again.
	Add(n int64)
	// End ends the phase.
	End()
	// Say reports something worth knowing, such as another attempt.
	Say(line string)
}

// puller is one Pull with its limits; tests shorten them.
type puller struct {
	Options
	client     *http.Client
	chunk      int64         // bytes of a range
	stall      time.Duration // a body with fewer than leastBytes in that time has stalled
	firstPause time.Duration // before the second attempt; doubled up to mostPause
	mostPause  time.Duration
	mostAsked  time.Duration // the longest Retry-After that is obeyed
	attempts   int           // failed attempts in a row
	saveEvery  time.Duration
	free       func(dir string) (uint64, error)
}

// leastBytes is how much an attempt must receive to count as progress, and a body within
// stall.
const leastBytes = 16 << 10

func newPuller(o Options) (*puller, error) {
	o.Endpoint = cmp.Or(o.Endpoint, DefaultEndpoint)
	o.Connections = cmp.Or(o.Connections, DefaultConnections)
	if o.Connections < 1 || o.Connections > MostConnections {
		return nil, inputError("%d connections: want 1 to %d", o.Connections, MostConnections)
	}
	o.Dir, o.DirSetting = cmp.Or(o.Dir, "."), cmp.Or(o.DirSetting, "--dir")
	p := &puller{
		Options: o, chunk: 64 << 20, stall: 30 * time.Second,
		firstPause: time.Second / 2, mostPause: 30 * time.Second, mostAsked: 2 * time.Minute, attempts: 8,
		saveEvery: 5 * time.Second, free: partial.Free,
	}
	p.client = newClient(p.stall, o.Connections)
	return p, p.checkEndpoint()
}

// Pull fetches what ref names and returns the paths of the files in the order of
// their parts; a server is started with the first one. ref is
//
//	hf:OWNER/REPO[@REVISION][:QUANT]
//	https://HOST/PATH.gguf
//
// QUANT is the part of the names that distinguishes the files of a repository, such as
// Q4_K_M, or the path of a file. Files that exist and are correct are not fetched.
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
		return nil, inputError("%v: choose another directory with %s", err, p.DirSetting)
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
		return nil, err // before making anything that a server only announces
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
		return fmt.Errorf("free space of %s: %w", p.Dir, err)
	}
	if needed > room {
		return inputError("%s needs %s more, but only %s are free: free %s or choose another directory with %s",
			p.Dir, units.Bytes(needed), units.Bytes(room), units.Bytes(needed-room), p.DirSetting)
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

// checkPresent returns the missing files. A file that exists and differs is an error,
// because it may be somebody's work.
func (p *puller) checkPresent(ctx context.Context, files []*file) (missing []*file, err error) {
	var present []*file
	var total int64
	for _, f := range files {
		info, err := os.Stat(f.path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			if _, err := os.Lstat(f.path); err == nil {
				return nil, inputError("%s is a symbolic link that leads nowhere: remove it or choose another directory with %s", f.path, p.DirSetting)
			}
			missing = append(missing, f)
			continue
		case err != nil:
			return nil, inputError("%v", err)
		case !info.Mode().IsRegular():
			return nil, inputError("%s exists and is not a file: move it away or choose another directory with %s", f.path, p.DirSetting)
		case info.Size() != f.size:
			return nil, inputError("%s exists with %d bytes, expected %d: remove it or choose another directory with %s", f.path, info.Size(), f.size, p.DirSetting)
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
			return nil, err
		}
		if f.sha256 != "" && sum != f.sha256 {
			return nil, inputError("%s already exists with SHA-256 %s, expected %s: remove it or choose another directory with %s", f.path, sum, f.sha256, p.DirSetting)
		}
		p.Report.Say(f.path + " already exists")
	}
	return missing, nil
}
