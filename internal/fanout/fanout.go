// Package fanout copies the files of a model from rank 0 of a group to the other ranks,
// over the group's own links: Lead runs on rank 0, Follow on the others.
//
// The ranks form a chain: each sends what it receives to the next one while it receives
// more, so that a file crosses each link once, however many ranks there are. Each block
// has a checksum. The SHA-256 of a whole file is compared with rank 0's before the file
// gets its name. Received data stays in NAME.part (package partial), so that the next
// copy resumes one that ended early.
//
// Rank 0 plans the work and hands it out in pieces (cluster.Leader); every rank does
// all of them, in order:
//
//	look            announce which blocks this rank has, so that all know which to send
//	send FROM TO    send some of the blocks that a rank lacks
//	hash I          compute the SHA-256 of file I
//	finish I        compare it with rank 0's, and give the file its name
package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/pull"
	"ringmaster/internal/pull/partial"
	"ringmaster/internal/safetext"
)

// The limits of what rank 0 may announce.
const (
	mostFiles  = 4096
	mostBytes  = partial.MostBytes
	mostBlock  = 64 << 20
	mostBlocks = 1 << 22 // blocks of all files
)

// blockBytes is the length of a block, and batch how many blocks one piece of work sends:
// 512 MiB, which a responsive rank has minutes for.
const (
	blockBytes = 8 << 20
	batch      = 64
)

// hashRate is the assumed least rate of hashing a file, in bytes/s; it sets the time
// limit.
const hashRate = 20 << 20

// Protocol is the fingerprint in the hello of the ranks of a copy, so that none of them
// joins a group that serves a model.
const Protocol = "ringmaster share, version 1"

// manifest lists what rank 0 copies: the settings of the epoch.
type manifest struct {
	Files []entry `json:"files"`
	Block int64   `json:"block"` // bytes of each block of a file but the last
}

// entry is one file.
type entry struct {
	Name string `json:"name"` // without directory
	Size int64  `json:"size"` // bytes
	Tag  string `json:"tag"`  // identifies the version of the file on rank 0
}

// parseManifest reads and checks settings, because they come from another host.
func parseManifest(settings []byte) (m manifest, err error) {
	if err := json.Unmarshal(settings, &m); err != nil {
		return m, fmt.Errorf("the list of files from rank 0: %w", err)
	}
	if n := len(m.Files); n == 0 || n > mostFiles {
		return m, fmt.Errorf("rank 0 announces %d files; expected 1 to %d", n, mostFiles)
	}
	if m.Block < 1 || m.Block > mostBlock {
		return m, fmt.Errorf("rank 0 announces blocks of %d bytes; expected 1 to %d", m.Block, mostBlock)
	}
	blocks, names := int64(0), map[string]bool{}
	for _, f := range m.Files {
		switch {
		case f.Name != filepath.Base(f.Name) || strings.ContainsAny(f.Name, "/\\\n\t") || strings.ContainsFunc(f.Name, safetext.Unsafe) || !strings.HasSuffix(f.Name, ".gguf") || f.Name == ".gguf" || len(f.Name) > 255:
			return m, fmt.Errorf("rank 0 announces a file named %q; expected the name of a GGUF file", f.Name)
		case names[f.Name]:
			return m, fmt.Errorf("rank 0 announces two files named %q", f.Name)
		case f.Size < 1 || f.Size > mostBytes:
			return m, fmt.Errorf("rank 0 announces %s with %d bytes; expected 1 to %d", f.Name, f.Size, int64(mostBytes))
		case f.Tag == "" || len(f.Tag) > 256:
			return m, fmt.Errorf("rank 0 announces %s without a version that can be used", f.Name)
		}
		names[f.Name] = true
		blocks += (f.Size + m.Block - 1) / m.Block
	}
	if blocks > mostBlocks {
		return m, fmt.Errorf("rank 0 announces %d blocks; at most %d can be copied at once", blocks, mostBlocks)
	}
	return m, nil
}

// describe returns the manifest of files on this host.
func describe(paths []string, block int64) (m manifest, err error) {
	m.Block = block
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return m, err
		}
		if !info.Mode().IsRegular() {
			return m, fmt.Errorf("%s is not a regular file", p)
		}
		m.Files = append(m.Files, entry{Name: filepath.Base(p), Size: info.Size(),
			Tag: fmt.Sprintf("%d.%d", info.ModTime().Unix(), info.ModTime().Nanosecond())})
	}
	text, err := json.Marshal(m)
	if err != nil {
		return m, err
	}
	return parseManifest(text) // the limits apply here too
}

// order is one piece of work.
type order struct {
	Op   string `json:"op"`
	From int    `json:"from,omitempty"` // for send: the first block to send, and the end
	To   int    `json:"to,omitempty"`
	File int    `json:"file,omitempty"` // for hash and finish
}

// Lead copies files to the ranks of the group that it forms as rank 0. cfg.Hello needs
// Rank, Size and Build. The first failure ends the copy on all ranks with an error that
// names the rank; received data stays.
func Lead(ctx context.Context, cfg cluster.Config, paths []string, report pull.Reporter) error {
	return LeadAt(ctx, cfg, paths, report, func(net.Addr) {})
}

// LeadAt is Lead that calls listening with its address when other ranks can join, because the
// port of cfg.Coordinator may be 0.
func LeadAt(ctx context.Context, cfg cluster.Config, paths []string, report pull.Reporter, listening func(net.Addr)) error {
	m, err := describe(paths, blockBytes)
	if err != nil {
		return err
	}
	return lead(ctx, cfg, m, paths, report, listening)
}

// lead is LeadAt with a manifest.
func lead(ctx context.Context, cfg cluster.Config, m manifest, paths []string, report pull.Reporter, listening func(net.Addr)) error {
	cfg.OnLoss = cluster.Fail
	cfg.Hello.Model, cfg.Hello.Fingerprint = "share", Protocol
	for _, f := range m.Files {
		cfg.WorkTimeout = max(cfg.WorkTimeout, time.Duration(f.Size/hashRate)*time.Second)
	}
	r, err := newSource(m, paths, report)
	if err != nil {
		return err
	}
	p := &program{}
	p.rank.Store(r)
	group, err := cluster.Lead(ctx, cfg, &planner{program: p, manifest: m})
	if err != nil {
		return errors.Join(err, p.close())
	}
	listening(group.Addr())
	err = p.run(ctx, group)
	reason := "the files are copied"
	if err != nil {
		reason = err.Error()
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return errors.Join(err, group.Close(end, reason), p.close())
}

// run hands out all work.
func (p *program) run(ctx context.Context, group *cluster.Leader) error {
	if err := group.Wait(ctx); err != nil {
		return err
	}
	epoch, err := group.Epoch()
	if err != nil {
		return err
	}
	do := func(o order) error {
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		n, err := group.Begin(epoch.Number, payload)
		if err != nil {
			return err
		}
		digest, err := p.Work(payload)
		if err != nil {
			return group.Fail(epoch.Number, err)
		}
		return group.End(ctx, n, digest)
	}
	if err := do(order{Op: "look"}); err != nil {
		return err
	}
	r := p.rank.Load()
	for from := 0; from < len(r.missing); from += batch {
		if err := do(order{Op: "send", From: from, To: min(from+batch, len(r.missing))}); err != nil {
			return err
		}
	}
	for _, op := range []string{"hash", "finish"} {
		for i := range r.files {
			if err := do(order{Op: op, File: i}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Follow receives the files of rank 0 into dir, which it creates if needed, and returns
// their paths. cfg.Hello needs Rank, Size and Build. Existing files are compared, never
// overwritten.
func Follow(ctx context.Context, cfg cluster.Config, dir string, report pull.Reporter) ([]string, error) {
	cfg.Hello.Model, cfg.Hello.Fingerprint = "share", Protocol
	p := &program{open: func(m manifest) (*rank, error) { return newTarget(m, dir, report) }}
	err := cluster.Follow(ctx, cfg, p)
	r := p.rank.Load()
	if cause := p.cause(); err == nil && (r == nil || !r.finished()) {
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case cause != nil:
			err = cause
		default:
			err = errors.New("rank 0 has ended the copy")
		}
	}
	if err := errors.Join(err, p.close()); err != nil {
		return nil, err
	}
	return r.paths(), nil
}
