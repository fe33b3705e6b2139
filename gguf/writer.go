package gguf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WriterAlignment is the alignment in bytes of every tensor that a Writer lays
// out, and of the data section itself: GGUF's default, which needs no
// general.alignment key.
const WriterAlignment = 32

// maxTensorName is the longest tensor name that GGML's loader accepts
// (GGML_MAX_NAME minus its terminating zero).
const maxTensorName = 63

// Writer collects metadata and tensors and writes them as one GGUF version 3 file, or as
// a split set. Tensor data do not exist before the file is written, because the fill
// function streams them into it. A Writer is not safe for concurrent use.
type Writer struct {
	kvs     []keyValue
	keys    map[string]bool
	tensors []writerTensor
	names   map[string]bool
	parts   int
	workers int
	err     error // the first error of Put or Add, returned again by WriteFile
}

type keyValue struct {
	key   string
	bytes []byte // the value's type and the value, as they are in the file
}

type writerTensor struct {
	name  string
	typ   Type
	shape []int64
	size  int64 // bytes of data, without padding
	fill  func(io.Writer) error
}

// NewWriter returns an empty Writer: one part, one worker.
func NewWriter() *Writer {
	return &Writer{keys: map[string]bool{}, names: map[string]bool{}, parts: 1, workers: 1}
}

// SetParts makes WriteFile write n files (-00001-of-0000n in place of the
// suffix .gguf). Each gets a run of consecutive tensors, so that the files are
// of about equal length; all metadata is in the first. 1 ≤ n ≤ 65535.
func (w *Writer) SetParts(n int) error {
	if n < 1 || n > math.MaxUint16 {
		return fmt.Errorf("%d parts: want 1 to %d", n, math.MaxUint16)
	}
	w.parts = n
	return nil
}

// SetWorkers lets WriteFile run up to n fill functions at a time, each for a
// different tensor. The bytes of the file do not depend on n. n < 1 means 1.
func (w *Writer) SetWorkers(n int) { w.workers = max(n, 1) }

// Put adds a metadata value: a uint32, int32, uint64, float32, bool, string,
// []string, []int32, []uint32, []uint64, []float32 or []bool. Any other type, a key put twice, an
// empty key, and a key that the Writer itself manages (split.*, and
// general.alignment other than 32) are errors. The error is also returned by
// the next WriteFile, so a caller with many keys may check only there.
func (w *Writer) Put(key string, value any) error {
	if err := w.checkKey(key, value); err != nil {
		return w.fail(err)
	}
	b, err := encodeValue(value)
	if err != nil {
		return w.fail(fmt.Errorf("key %q: %w", key, err))
	}
	w.keys[key] = true
	w.kvs = append(w.kvs, keyValue{key, b})
	return nil
}

func (w *Writer) checkKey(key string, value any) error {
	switch {
	case key == "":
		return errors.New("a metadata key must not be empty")
	case w.keys[key]:
		return fmt.Errorf("key %q put twice", key)
	case key == keySplitNo || key == keySplitCount || key == keySplitTensors:
		return fmt.Errorf("key %q is set by the writer: use SetParts", key)
	case key == "general.alignment" && value != any(uint32(WriterAlignment)):
		return fmt.Errorf("key %q is %v: the writer aligns to uint32 %d only", key, value, WriterAlignment)
	}
	return nil
}

// Add adds a tensor. shape is in GGUF's order (row length first), 1 to 4
// lengths of at least 1; a row must be a whole number of t's blocks. fill
// writes exactly the tensor's bytes (little-endian, row after row); it runs
// while the file is written and must not depend on other fills. A nil fill
// leaves a hole: the data reads as zeros and takes no space on a file system
// with sparse files. The error is also returned by the next WriteFile.
func (w *Writer) Add(name string, t Type, shape []int64, fill func(w io.Writer) error) error {
	size, err := w.checkTensor(name, t, shape)
	if err != nil {
		return w.fail(fmt.Errorf("tensor %q: %w", name, err))
	}
	w.names[name] = true
	w.tensors = append(w.tensors, writerTensor{name, t, slices.Clone(shape), size, fill})
	return nil
}

func (w *Writer) checkTensor(name string, t Type, shape []int64) (size int64, err error) {
	switch {
	case name == "" || len(name) > maxTensorName:
		return 0, fmt.Errorf("the name has %d bytes, want 1 to %d", len(name), maxTensorName)
	case w.names[name]:
		return 0, errors.New("added twice")
	case !t.Known():
		return 0, fmt.Errorf("unknown element type %s", t)
	case len(shape) < 1 || len(shape) > 4:
		return 0, fmt.Errorf("shape %v has %d dimensions, want 1 to 4", shape, len(shape))
	}
	per, bytes := int64(t.BlockElements()), int64(t.BlockBytes())
	if shape[0]%per != 0 {
		return 0, fmt.Errorf("a row of %d elements is not a multiple of %s's block of %d", shape[0], t, per)
	}
	// The limit also keeps the sum of many tensors and their padding in range.
	const most = math.MaxInt64 / 1024
	elements := int64(1)
	for _, n := range shape {
		if n < 1 || n > most/elements {
			return 0, fmt.Errorf("shape %v is empty, negative or too large", shape)
		}
		elements *= n
	}
	if elements/per > most/bytes {
		return 0, fmt.Errorf("shape %v is too large", shape)
	}
	return elements / per * bytes, nil
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

// DataBytes is the total size of all tensors so far, without padding.
func (w *Writer) DataBytes() int64 {
	var n int64
	for _, t := range w.tensors {
		n += t.size
	}
	return n
}

// Paths lists the files that WriteFile(path) writes: path itself, or with
// several parts the names of the split set.
func (w *Writer) Paths(path string) []string {
	if w.parts == 1 {
		return []string{path}
	}
	stem := strings.TrimSuffix(path, ".gguf")
	paths := make([]string, w.parts)
	for i := range paths {
		paths[i] = fmt.Sprintf("%s-%05d-of-%05d.gguf", stem, i+1, w.parts)
	}
	return paths
}

// WriteFile writes the file, or the files of the split set, that Paths names. Each is
// written under a temporary name in the same directory, and all are renamed once they are
// complete. They replace existing files of those names, but never a path that is no file,
// such as a device. After an error no file has been replaced and no temporary file is
// left.
func (w *Writer) WriteFile(path string) (err error) {
	if w.err != nil {
		return w.err
	}
	parts, err := w.plan()
	if err != nil {
		return err
	}
	paths := w.Paths(path)
	for _, p := range paths { // root may rename over /dev/null
		if at, err := os.Stat(p); err == nil && !at.Mode().IsRegular() {
			return fmt.Errorf("write %s: it exists and is not a regular file; choose another path", p)
		}
	}
	var temps []string
	defer func() {
		for _, t := range temps { // Remove does nothing to those that were renamed
			os.Remove(t)
		}
	}()
	for i, p := range parts {
		f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(paths[i])+".*.tmp")
		if err != nil {
			return fmt.Errorf("write %s: %w", paths[i], err)
		}
		temps = append(temps, f.Name())
		err = p.writeFile(f, w.workers)
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", paths[i], err)
		}
	}
	for i := range temps {
		if err := os.Rename(temps[i], paths[i]); err != nil {
			for _, done := range paths[:i] {
				os.Remove(done)
			}
			return fmt.Errorf("write %s: %w", paths[i], err)
		}
	}
	return nil
}
