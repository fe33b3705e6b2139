package deepseek41

import (
	"math"
	"ringmaster/gguf"
)

// Engram: two layers add to the residual what a table has for the last tokens. The ids are
// folded (case, accents), every order of n-gram from 2 on is hashed by each head, and each
// hash names a row of the layer's table. The integers are exact, of 64 bits.

// Engram is the constants of the hash.
type Engram struct {
	Layers []int // that have it
	Gram   int   // n, the tokens of the longest n-gram
	Heads  int   // hashes of an n-gram
	Width  int   // values of a row of the table

	Pad         uint64   // folded id in place of tokens before the first
	Multipliers []uint64 // [len(Layers)][Gram]
	Primes      []uint64 // [len(Layers)][Gram-1][Heads]
	Offsets     []uint64 // [len(Layers)][Gram-1][Heads], rows before those of a hash
	Map         []uint64 // [V] folded ids
}

// columns is how many rows a token has in a layer.
func (e *Engram) columns() int { return (e.Gram - 1) * e.Heads }

// values is how many values they have together.
func (e *Engram) values() int { return e.columns() * e.Width }

// exists reports whether any layer has an engram.
func (e *Engram) exists() bool { return len(e.Layers) > 0 }

// rows is how many rows the hashes of a layer can name.
func (e *Engram) rows(layer int) (n uint64) {
	for _, p := range e.Primes[layer*e.columns():][:e.columns()] {
		n += p
	}
	return n
}

// hash writes the rows [columns] of a token in an engram layer. folded [Gram] are the folded
// ids of the token and of those before it, the token first.
func (e *Engram) hash(rows []uint64, layer int, folded []uint64) {
	m := e.Multipliers[layer*e.Gram:][:e.Gram]
	at := layer * e.columns()
	rolling := folded[0] * m[0]
	for s := 1; s < e.Gram; s++ {
		rolling ^= folded[s] * m[s]
		for range e.Heads {
			rows[at-layer*e.columns()] = rolling%e.Primes[at] + e.Offsets[at]
			at++
		}
	}
}

// mostGram and mostHeads bound what a hash computes for a token.
const mostGram, mostHeads = 16, 64

// readEngram reads the constants of the hash. Files of ds4 leave out what follows from the
// lengths of the others.
func (c *Config) readEngram(r *keys) {
	e := &c.Engram
	if !e.exists() {
		return
	}
	n := len(e.Layers)
	multipliers := r.numbers(r.first("engram.multipliers", "engram.hash_multipliers"))
	primes := r.numbers("engram.primes")
	e.Map = r.numbers("engram.token_map")
	if len(multipliers) == 0 || len(primes) == 0 || len(e.Map) == 0 {
		return
	}
	if r.ds4 {
		e.Gram = len(multipliers) / n
		e.Heads = len(primes) / n / max(1, e.Gram-1)
		e.Width = 256
	} else {
		e.Gram = r.Number("engram.max_ngram_size", 2, mostGram)
		e.Heads = r.Number(r.first("engram.head_count", "engram.n_heads"), 1, mostHeads)
		e.Width = r.Number(r.first("engram.key_length", "engram.head_dim"), 1, 1<<16)
	}
	if e.Gram < 2 || e.Gram > mostGram || e.Heads < 1 || e.Heads > mostHeads || len(multipliers) != n*e.Gram || len(primes) != n*e.columns() {
		r.Fail("keys %q and engram.primes have %d and %d values, which do not fit %d layers, n-grams of up to %d tokens and %d heads",
			r.Name("engram.multipliers"), len(multipliers), len(primes), n, e.Gram, e.Heads)
		return
	}
	if len(e.Map) != c.Vocab {
		r.Fail("key %q has %d values for a vocabulary of %d", r.Name("engram.token_map"), len(e.Map), c.Vocab)
		return
	}
	for id, folded := range e.Map {
		if folded > math.MaxInt32 { // sequences keep folded ids as int32
			r.Fail("key %q gives token %d the id %d, above %d", r.Name("engram.token_map"), id, folded, math.MaxInt32)
			return
		}
	}
	e.Multipliers, e.Primes = multipliers, primes
	e.readOffsets(r)
	c.readPad(r)
	c.checkTables(r)
}

// numbers is an array of integers of 0 or more.
func (r *keys) numbers(key string) []uint64 {
	vs, ok := r.File.Ints(r.Name(key))
	if !ok || len(vs) == 0 {
		r.Fail("key %q is missing or not an array of integers; early conversions lack the constants of the engram's hash: take a later download", r.Name(key))
		return nil
	}
	out := make([]uint64, len(vs))
	for i, v := range vs {
		if v < 0 {
			r.Fail("key %q: value %d is %d; expected 0 or more", r.Name(key), i, v)
			return nil
		}
		out[i] = uint64(v)
	}
	return out
}

// readOffsets computes the offsets, with which those of the file must agree.
func (e *Engram) readOffsets(r *keys) {
	e.Offsets = make([]uint64, len(e.Primes))
	var listed []int64
	if r.Has("engram.offsets") {
		if listed, _ = r.File.Ints(r.Name("engram.offsets")); len(listed) != len(e.Primes) {
			r.Fail("key %q has %d values, engram.primes %d", r.Name("engram.offsets"), len(listed), len(e.Primes))
			return
		}
	}
	at := uint64(0)
	for i, p := range e.Primes {
		if i%e.columns() == 0 {
			at = 0
		}
		if p == 0 || p > 1<<40 {
			r.Fail("key %q: value %d is %d; expected 1 to 2^40", r.Name("engram.primes"), i, p)
			e.Primes[i], p = 1, 1
		}
		e.Offsets[i] = at
		if listed != nil && uint64(listed[i]) != at {
			r.Fail("key %q: value %d is %d; expected %d, the sum of the primes before it", r.Name("engram.offsets"), i, listed[i], at)
			return
		}
		at += p
	}
}

// readPad reads the folded id of the padding. One file family has it unfolded.
func (c *Config) readPad(r *keys) {
	e := &c.Engram
	if !r.Has("engram.pad_id") && r.Has("engram.pad_token_id") {
		e.Pad = e.Map[r.Number("engram.pad_token_id", 0, c.Vocab-1)]
		return
	}
	e.Pad = uint64(r.Number("engram.pad_id", 0, 1<<30))
}

// The encodings of rows in I8, which have 32 values to a scale.
const (
	encodingE4M3   = "e4m3_e8m0_32_row264"
	encodingLloyd4 = "lloyd4_e5m3_32_r136"
)

// checkTables checks the shapes of the tables, by which their rows are decoded.
func (c *Config) checkTables(r *keys) {
	e := &c.Engram
	named, _ := r.File.String(r.Name("engram.encoding"))
	if r.Has("engram.encoding") && named != encodingE4M3 && named != encodingLloyd4 {
		r.Fail("key %q is %q; expected %s or %s", r.Name("engram.encoding"), named, encodingE4M3, encodingLloyd4)
	}
	for i, layer := range e.Layers {
		t, _ := r.File.Tensor(layerTensor(layer, "engram_embd.weight"))
		if len(t.Shape) != 2 || uint64(t.Shape[1]) < e.rows(i) {
			r.Fail("tensor %q has shape %v; expected at least %d rows, the sum of layer %d's primes", t.Name, t.Shape, e.rows(i), layer)
			continue
		}
		encoding, ok := e.encodingOf(t)
		if !ok {
			r.Fail("tensor %q is %s with rows of %d; expected rows of %d values, or I8 with %d (%s) or %d (%s)", t.Name, t.Type, t.Shape[0],
				e.Width, e.Width+e.Width/32, encodingE4M3, e.Width/2+e.Width/32, encodingLloyd4)
		} else if named != "" && encoding != "" && encoding != named {
			r.Fail("key %q is %q, but the rows of tensor %q have the length of %s", r.Name("engram.encoding"), named, t.Name, encoding)
		}
	}
}

// encodingOf is how the rows of a table are encoded: "" as blocks of its type.
func (e *Engram) encodingOf(t gguf.Tensor) (encoding string, ok bool) {
	switch {
	case t.Type == gguf.I8 && e.Width%32 == 0 && t.Shape[0] == int64(e.Width+e.Width/32):
		return encodingE4M3, true
	case t.Type == gguf.I8 && e.Width%32 == 0 && t.Shape[0] == int64(e.Width/2+e.Width/32):
		return encodingLloyd4, true
	}
	return "", t.Type.Weights() && t.Shape[0] == int64(e.Width)
}
