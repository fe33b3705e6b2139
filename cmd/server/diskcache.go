package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/api/run"
	"ringmaster/engine"
	"ringmaster/engine/diskcache"
	"ringmaster/gguf"
	"ringmaster/internal/flags"
	"ringmaster/internal/program"
	"ringmaster/internal/trust"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/replica"
)

// diskOptions are the flags of the prefix cache on disk.
type diskOptions struct {
	given string // DIR or DIR=SIZE
	dir   string // the directory, once it is open

	replays *run.Replays // answers with calls, kept in the directory; nil until keep
}

// flushGrace is how long a server that ends may take to save conversations that are not on
// disk yet.
const flushGrace = 5 * time.Second

func (o *diskOptions) register(f *pflag.FlagSet) {
	flags.Out(f, &o.given, "cache-dir", "", "prefix cache on disk: keep finished sequences in this `directory`, so that conversations continue after a restart; only this server may use it. DIR=SIZE, such as /var/cache/rm=64GiB, bounds its bytes; default 16GiB")
}

// defaultCacheBytes bounds the prefix cache on disk.
const defaultCacheBytes = 16 << 30

// parseCacheDir reads DIR or DIR=SIZE. A name with = whose last part is no size is refused:
// a slip in the size must not name another directory.
func parseCacheDir(s string) (dir string, size int64, err error) {
	at := strings.LastIndex(s, "=")
	if at < 0 || strings.ContainsRune(s[at:], filepath.Separator) {
		return s, defaultCacheBytes, nil
	}
	size, err = units.ParseBytes(s[at+1:])
	return s[:at], size, errors.Join(err, formed(at > 0 && s[at+1:] != ""))
}

// open opens the directory, before the model is loaded; nil without the flag.
func (o *diskOptions) open() (*diskcache.Store, error) {
	if o.given == "" {
		return nil, nil
	}
	dir, budget, err := parseCacheDir(o.given)
	if err != nil {
		return nil, usage.Errorf("--cache-dir %s: %w", o.given, err)
	}
	o.dir = dir
	s, err := diskcache.Open(o.dir, diskcache.Options{Budget: budget})
	if diskcache.DiskFailed(err) {
		slog.Warn("the disk failed; serving without the prefix cache on disk until the next start", "dir", o.dir, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, usage.Errorf("--cache-dir: %w", err)
	}
	trust.WarnIfOthersMay(o.dir, 0o005, "list of kept conversations, with sizes and times")
	return s, nil
}

// use names the model that the snapshots are of.
func (o *diskOptions) use(s *diskcache.Store, m *modelOptions, l *loaded) {
	if s == nil {
		return
	}
	// All that decides the bits of a snapshot, but not the group: with --reduce exact it does
	// not, and with sum a group of any size may go on with what another has computed.
	s.Use(fingerprintOf(gguf.Fingerprint(l.file), gguf.WeightSample(l.file), program.ID(), l.bits(), m.reduce, replica.Settings{}), l.model.Info().Rewind)
	st := s.Stats()
	slog.Info("prefix cache on disk", "dir", o.dir, "snapshots", st.Entries, "size", units.Bytes(st.Bytes), "budget", units.Bytes(st.Budget))
}

// keep makes the answers with calls outlive the process, too; they are nil without the flag.
// The prompt in which a client sends one back is that of a snapshot only if it has the
// tokens that were sampled.
func (o *diskOptions) keep(s *diskcache.Store, l *loaded, format string, vocabulary int) {
	if s == nil {
		return
	}
	r := run.NewReplays(run.DefaultReplays)
	if err := r.Keep(filepath.Join(o.dir, "replays"), gguf.Fingerprint(l.file)+" "+format, vocabulary, slog.Default()); err != nil {
		slog.Warn("answers with calls are not kept on disk until the next start", "dir", o.dir, "error", err)
		return
	}
	o.replays = r
}

// flush saves what is not on disk yet.
func (o *diskOptions) flush(e *engine.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), flushGrace)
	defer cancel()
	if err := e.Flush(ctx); err != nil {
		slog.Warn("some conversations cannot be continued after a restart", "dir", o.dir, "error", err)
	}
}

// close gives the directory free. What is being written has flushGrace to end.
func (o *diskOptions) close(s *diskcache.Store) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushGrace)
	defer cancel()
	var err error
	if o.replays != nil {
		err = o.replays.Close(ctx)
	}
	if err := errors.Join(err, s.Close(ctx)); err != nil {
		slog.Warn("closing the prefix cache on disk failed", "dir", o.dir, "error", err)
	}
}

// memory is what the cache takes of Go's heap.
func (o *diskOptions) memory() int64 {
	if o.given == "" {
		return 0
	}
	return int64(diskcache.MemoryBytes) + run.DefaultReplays // while the file is rewritten
}
