package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"ringmaster/distributed/cluster"
)

// program is a rank's part of a copy: a cluster.Worker, and with planner a
// cluster.Planner.
type program struct {
	open func(manifest) (*rank, error)
	rank atomic.Pointer[rank] // nil before the first epoch

	working sync.Mutex // held by Work, and while files are opened and closed

	mu    sync.Mutex
	epoch cluster.Epoch
	err   error // of the work that failed on this rank
}

// planner is the program of rank 0.
type planner struct {
	*program
	manifest manifest
}

// Plan implements cluster.Planner: the settings are the manifest.
func (p *planner) Plan([]cluster.Hello) ([]byte, error) { return json.Marshal(p.manifest) }

// Fits implements cluster.Planner: the files go to all ranks or to none.
func (*planner) Fits([]cluster.Hello) error { return nil }

// Describe implements cluster.Planner. The work of a copy has no digests.
func (p *planner) Reads() cluster.Reads { return cluster.Reads{} }
func (p *planner) Describe(int) string  { return "nothing" }

// Form implements cluster.Program: rank 0 has opened the files already.
func (*planner) Form(context.Context, []byte) error { return nil }

// Form implements cluster.Program: a follower opens its files. A restarted rank 0 may
// have other files than before.
func (p *program) Form(_ context.Context, settings []byte) (err error) {
	defer func() { p.failed(err) }()
	m, err := parseManifest(settings)
	if err != nil {
		return err
	}
	if err := p.close(); err != nil {
		return err
	}
	p.working.Lock()
	defer p.working.Unlock()
	r, err := p.open(m)
	if err != nil {
		return err
	}
	p.rank.Store(r)
	return nil
}

// Start implements cluster.Program.
func (p *program) Start(e cluster.Epoch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = e
	return nil
}

// Report implements cluster.Worker.
func (*program) Report() []byte { return nil }

// Work implements cluster.Worker: it does one order.
func (p *program) Work(payload []byte) (cluster.Digest, error) {
	p.mu.Lock()
	e := p.epoch
	p.mu.Unlock()
	var o order
	if err := json.Unmarshal(payload, &o); err != nil {
		return nil, fmt.Errorf("an order from rank 0: %w", err)
	}
	p.working.Lock()
	defer p.working.Unlock()
	err := p.rank.Load().do(e.Done, e.Group, o)
	p.failed(err)
	return nil, err
}

// failed keeps an error of this rank.
func (p *program) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = err
	}
}

// cause returns why the copy failed, as far as this rank knows: the verdict of the epoch,
// or its own error.
func (p *program) cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch.Done != nil && p.epoch.Done.Err() != nil {
		if cause := context.Cause(p.epoch.Done); !errors.Is(cause, context.Canceled) {
			return cause
		}
	}
	return p.err
}

// close saves the received data and closes all files.
func (p *program) close() error {
	p.working.Lock()
	defer p.working.Unlock()
	r := p.rank.Load()
	if r == nil {
		return nil
	}
	return r.close()
}
