package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"ringmaster/api/run"
	"ringmaster/engine"
	"ringmaster/engine/diskcache"
	"ringmaster/gguf"
	"ringmaster/internal/trust"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

// Disk is a prefix cache on disk.
type Disk struct {
	Dir    string // empty: none
	Budget int64  // bytes; 0 is the default of 16 GiB
}

// flushGrace is how long a server that ends may take to save conversations that are not
// on disk yet.
const flushGrace = 5 * time.Second

// defaultBudget bounds the prefix cache on disk.
const defaultBudget = 16 << 30

// cacheDir is the directory of a prefix cache on disk; without one its methods do nothing.
type cacheDir struct {
	dir     string
	store   *diskcache.Store
	replays *run.Replays // answers with calls, kept in the directory; nil until keep
}

// open opens the directory, before the model is loaded.
func (d Disk) open() (*cacheDir, error) {
	if d.Dir == "" {
		return &cacheDir{}, nil
	}
	s, err := diskcache.Open(d.Dir, diskcache.Options{Budget: cmp.Or(d.Budget, defaultBudget)})
	if diskcache.DiskFailed(err) {
		slog.Warn("the disk failed; serving without the prefix cache on disk until the next start", "dir", d.Dir, "error", err)
		return &cacheDir{}, nil
	}
	if err != nil {
		return nil, usage.Errorf("--cache-dir: %w", err)
	}
	trust.WarnIfOthersMay(d.Dir, 0o005, "list of kept conversations, with sizes and times")
	return &cacheDir{dir: d.Dir, store: s}, nil
}

// use sets the model that the snapshots belong to.
func (c *cacheDir) use(n *node.Node) {
	if c.store == nil {
		return
	}
	info := n.Model.Info()
	c.store.Use(n.StateFingerprint(), info.Rewind, info.Replay)
	st := c.store.Stats()
	slog.Info("prefix cache on disk", "dir", c.dir, "snapshots", st.Entries, "size", units.Bytes(st.Bytes), "budget", units.Bytes(st.Budget))
}

// keep makes the answers with calls survive restarts, too; they are nil without the flag.
// When a client sends one back, its prompt matches a snapshot only if it has the tokens
// that were sampled.
func (c *cacheDir) keep(n *node.Node, format string) {
	if c.store == nil {
		return
	}
	r := run.NewReplays(run.DefaultReplays)
	if err := r.Keep(filepath.Join(c.dir, "replays"), gguf.Fingerprint(n.File)+" "+format, n.Tokens.Size(), slog.Default()); err != nil {
		slog.Warn("answers with calls are not kept on disk until the next start", "dir", c.dir, "error", err)
		return
	}
	c.replays = r
}

// flush saves what is not on disk yet.
func (c *cacheDir) flush(e *engine.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), flushGrace)
	defer cancel()
	if err := e.Flush(ctx); err != nil {
		slog.Warn("some conversations cannot be continued after a restart", "dir", c.dir, "error", err)
	}
}

// close releases the directory. Writes in progress have flushGrace to end.
func (c *cacheDir) close() {
	if c.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushGrace)
	defer cancel()
	var err error
	if c.replays != nil {
		err = c.replays.Close(ctx)
	}
	if err := errors.Join(err, c.store.Close(ctx)); err != nil {
		slog.Warn("closing the prefix cache on disk failed", "dir", c.dir, "error", err)
	}
}

// memory returns what the cache takes of Go's heap.
func (d Disk) memory() int64 {
	if d.Dir == "" {
		return 0
	}
	return int64(diskcache.MemoryBytes) + run.DefaultReplays // while the file is rewritten
}
