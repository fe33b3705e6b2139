package keys

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ringmaster/internal/reload"
)

// Ring holds the keys of a server: the given ones, and those of a file that it reads
// again when the file changes. A key of the file is valid only while its hash is in it.
type Ring struct {
	given []*Holder
	file  *reload.Value[[]*Holder] // nil: there is none
}

// Options says where keys come from.
type Options struct {
	// Given are keys without names and limits; empty ones match nothing.
	Given []string
	File  string           // "": none
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: slog.Default()
}

// Open reads the keys. At start a file must have at least one key, or a comment to show
// that it has none on purpose. Errors name file and line.
func Open(o Options) (*Ring, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	r := &Ring{}
	seen := map[[sha256.Size]byte]bool{}
	for i, key := range o.Given {
		h := Hash(key)
		if key == "" || seen[h] { // an empty key would match a request without one
			continue
		}
		seen[h] = true
		r.given = append(r.given, newHolder(Key{Name: fmt.Sprintf("api-key-%d", i+1), Hash: h}, &use{}, o.Now()))
	}
	if o.File == "" {
		return r, nil
	}
	f := &keyFile{path: o.File, now: o.Now, log: o.Log, uses: map[[sha256.Size]byte]*use{}}
	file, err := reload.New(reload.Options[[]*Holder]{Paths: []string{o.File}, Owned: true, Parse: f.parse, Reduce: f.reduce, Now: o.Now, Log: o.Log})
	if err != nil {
		return nil, err
	}
	r.file = file
	return r, nil
}

// keyFile makes holders from the contents of a file.
type keyFile struct {
	path   string
	now    func() time.Time
	log    *slog.Logger
	opened bool                       // the file has been read once
	list   []*Holder                  // the valid keys
	uses   map[[sha256.Size]byte]*use // of the valid keys, and of removed keys until their use has come back
}

// parse reads the file.
func (f *keyFile) parse(contents [][]byte) ([]*Holder, error) {
	list, err := Parse(contents[0])
	if err == nil && !f.opened && len(bytes.TrimSpace(contents[0])) == 0 {
		err = errors.New("it has no key; make one with: ringmaster key new NAME --api-keys FILE")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	if len(list) == 0 {
		f.log.Warn("the file of API keys has no keys, so none is valid", "file", f.path)
	}
	now := f.now()
	f.opened, f.list = true, make([]*Holder, len(list))
	for i, k := range list {
		if f.uses[k.Hash] == nil {
			f.uses[k.Hash] = &use{}
		}
		f.list[i] = newHolder(k, f.uses[k.Hash], now)
	}
	f.forget(now)
	return f.list, nil
}

// forget drops the use of removed keys once it has come back. Until then it is kept, so
// that removing a key and adding it again gives nothing back. At most MostKeys are kept.
func (f *keyFile) forget(now time.Time) {
	valid := map[[sha256.Size]byte]bool{}
	for _, h := range f.list {
		valid[h.Hash] = true
	}
	for hash, u := range f.uses {
		if !valid[hash] && (u.idle(now) || len(f.uses) > len(valid)+MostKeys) {
			delete(f.uses, hash)
		}
	}
}

// reduce keeps the keys that still have their hash in a file with a mistake; none if the
// file is gone. So a mistake admits no one, and keeps no removed key valid.
func (f *keyFile) reduce(contents [][]byte) []*Holder {
	there := map[[sha256.Size]byte]bool{}
	if contents != nil {
		there = hashes(contents[0])
	}
	var left []*Holder
	for _, h := range f.list {
		if there[h.Hash] {
			left = append(left, h)
		}
	}
	if n := len(f.list) - len(left); n > 0 {
		f.log.Warn("API keys that are no longer in the file are revoked", "file", f.path, "revoked", n, "remaining", len(left))
	}
	f.list = left
	return left
}

// Find returns the holder of a key, nil if the key is unknown. Its time does not depend
// on the key.
func (r *Ring) Find(key string) *Holder {
	given := Hash(key)
	var found *Holder
	search := func(list []*Holder) {
		for _, h := range list { // compares all of them, so that timing reveals nothing
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

// Several reports whether several keys exist, or may exist later.
func (r *Ring) Several() bool { return r.file != nil || len(r.given) > 1 }

// FromFile reports whether the keys come from a file, and whether its last change could
// not be used.
func (r *Ring) FromFile() (there, failed bool) {
	return r.file != nil, r.file != nil && r.file.Failed()
}
