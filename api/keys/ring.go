package keys

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ringmaster/internal/reload"
)

// Ring are the keys of a server: those given to it, and those of a file that it
// reads again when it changes.
type Ring struct {
	given []*Holder
	file  *reload.Value[[]*Holder] // nil: there is none
}

// Options are where keys come from.
type Options struct {
	// Given are keys without names and limits; empty ones match nothing.
	Given []string
	File  string           // "": none
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: slog.Default()
}

// Open reads the keys. A file must have at least one at start; errors name file and
// line.
func Open(o Options) (*Ring, error) {
	r := &Ring{}
	seen := map[[sha256.Size]byte]bool{}
	for i, key := range o.Given {
		h := Hash(key)
		if key == "" || seen[h] { // an empty key would match a request without one
			continue
		}
		seen[h] = true
		r.given = append(r.given, newHolder(Key{Name: fmt.Sprintf("api-key-%d", i+1), Hash: h}, nil))
	}
	if o.File == "" {
		return r, nil
	}
	before := map[[sha256.Size]byte]*Holder{}
	parse := func(contents [][]byte) ([]*Holder, error) {
		list, err := Parse(contents[0])
		if err == nil && len(list) == 0 {
			err = errors.New("no key in it; make one with: ringmaster key new NAME --api-keys FILE")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.File, err)
		}
		holders, now := make([]*Holder, len(list)), map[[sha256.Size]byte]*Holder{}
		for i, k := range list {
			holders[i] = newHolder(k, before[k.Hash])
			now[k.Hash] = holders[i]
		}
		before = now
		return holders, nil
	}
	file, err := reload.New(reload.Options[[]*Holder]{Paths: []string{o.File}, Parse: parse, Now: o.Now, Log: o.Log})
	if err != nil {
		return nil, err
	}
	r.file = file
	return r, nil
}

// Find returns who holds a key, nil if nobody does. The time it takes does not
// depend on the key.
func (r *Ring) Find(key string) *Holder {
	given := Hash(key)
	var found *Holder
	search := func(list []*Holder) {
		for _, h := range list { // all of them, so that timing reveals nothing
			if subtle.ConstantTimeCompare(given[:], h.Hash[:]) == 1 {
				found = h
			}
		}
	}
	search(r.given)
	if r.file != nil {
		search(r.file.Get())
	}
	return found
}

// Several reports whether there are, or may come to be, several keys.
func (r *Ring) Several() bool { return r.file != nil || len(r.given) > 1 }

// FromFile reports whether there is a file, and whether its last change could not be
// used.
func (r *Ring) FromFile() (there, failed bool) {
	return r.file != nil, r.file != nil && r.file.Failed()
}
