package bringup

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"ringmaster/distributed"
)

// ballot is a rank's contribution at the end of a stage: its error, or its part
// of the stage's result.
type ballot struct {
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// kinds are the kinds of errors that ballots carry.
var kinds = map[string]error{
	"unavailable": distributed.ErrUnavailable, "config": distributed.ErrConfig, "timeout": distributed.ErrTimeout,
}

// stageError says that a stage of the bring-up failed on a rank. It is the same
// on all ranks.
type stageError struct {
	stage string
	text  string
	kind  error // of kinds, or nil
}

func (e *stageError) Error() string {
	return e.stage + ": " + e.text
}

func (e *stageError) Unwrap() []error {
	if e.kind == nil {
		return []error{distributed.ErrBootstrap}
	}
	return []error{distributed.ErrBootstrap, e.kind}
}

// gather gives every rank the bytes of all ranks.
func gather(ctx context.Context, side *distributed.Group, mine []byte) ([][]byte, error) {
	n := side.Size()
	var own [8]byte
	binary.LittleEndian.PutUint64(own[:], uint64(len(mine)))
	lengths := make([]byte, 8*n)
	if err := side.AllGather(ctx, lengths, own[:]); err != nil {
		return nil, err
	}
	sizes := make([]int, n)
	total, at := 0, 0
	for r := range sizes {
		size := binary.LittleEndian.Uint64(lengths[8*r:])
		if size > 1<<20 {
			return nil, fmt.Errorf("%w: rank %d announces %d bytes while the group is formed", distributed.ErrBootstrap, r, size)
		}
		if r == side.Rank() {
			at = total
		}
		sizes[r] = int(size)
		total += sizes[r]
	}
	all := make([]byte, total)
	copy(all[at:], mine)
	if err := side.AllGatherV(ctx, all, sizes); err != nil {
		return nil, err
	}
	out := make([][]byte, n)
	for r, size := range sizes {
		out[r], all = all[:size:size], all[size:]
	}
	return out, nil
}

// vote ends a stage: every rank gets the contributions of all, [ranks], or all
// get the error of the first rank that has one.
func vote[T any](ctx context.Context, b *bringup, stage string, mine T, err error) ([]T, error) {
	var v ballot
	if err != nil {
		v.Error = err.Error()
		for name, kind := range kinds {
			if errors.Is(err, kind) {
				v.Kind = name
			}
		}
	} else if v.Body, err = json.Marshal(mine); err != nil {
		v.Error = err.Error()
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	texts, err := gather(ctx, b.Side, text)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(texts))
	for r, x := range texts {
		var v ballot
		if err := json.Unmarshal(x, &v); err != nil {
			return nil, fmt.Errorf("%w: rank %d at %s sent no ballot: %w", distributed.ErrBootstrap, r, b.Link.Addrs[r], err)
		}
		if v.Error != "" {
			return nil, &distributed.OpError{Op: "connect", Rank: b.Link.Rank, Peer: r, Addr: b.Link.Addrs[r], World: b.Link.World, Hosts: b.Link.Hosts,
				Err: &stageError{stage: stage, text: strings.TrimSpace(v.Error), kind: kinds[v.Kind]}}
		}
		if err := json.Unmarshal(v.Body, &out[r]); err != nil {
			return nil, fmt.Errorf("%w: rank %d at %s: %w", distributed.ErrBootstrap, r, b.Link.Addrs[r], err)
		}
	}
	return out, nil
}
