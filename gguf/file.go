package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/ollama/ollama/fs/ggml"
)

// File is an open model: one GGUF file, or all parts of a split one. Its
// methods may be called from several goroutines at once; Close must not run
// concurrently with another method or while tensor data is in use.
type File struct {
	path    string
	parts   []source
	kv      ggml.KV // of the first part
	tensors []Tensor
	index   map[string]int // tensor name to place in tensors
	foreign ForeignTypes   // of all parts, while they are opened

	mu      sync.Mutex
	closed  bool
	derived map[string]Tensor
}

// source is the bytes of one part.
type source struct {
	path   string
	data   []byte
	mapped bool // data must be unmapped
	file   bool // path is a file that has data
}

// Open checks and maps the model at path. Only the header is read; a page of
// tensor data is read from the file when it is first used, so opening a model
// takes the same time whatever its size.
//
// If path ends in -00001-of-0000N.gguf, all N parts are opened: split.count and
// split.no of every part and split.tensors.count are checked, metadata comes
// from the first part and tensors from all. Any other part alone is an error.
//
// The file must not be truncated while it is open: an access to the lost pages
// raises SIGBUS, which terminates the program.
//
// Every error names the file (the part), and the key or tensor if there is one.
// Open works on Linux and macOS; elsewhere it returns an error.
func Open(path string) (*File, error) {
	parts, err := Parts(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path}
	for i, part := range parts {
		data, err := mapFile(part)
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			err = &MissingPart{Path: part, Part: i + 1, Of: len(parts)}
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.parts = append(f.parts, source{path: part, data: data, mapped: true, file: true})
		if err := f.add(i, len(parts)); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", part, err), f.Close())
		}
	}
	if err := f.finish(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}

// Read checks a model that is in memory, such as the one embedded in the program. data is
// the whole file and is not used after Read has returned. The bytes of a file with
// tensors are copied to memory that Close frees: page-aligned, read-only and outside Go's
// heap, so that kernels in C and devices may keep pointers into it. name stands in for
// the path in errors. Read refuses a single part of a split model.
func Read(name string, data []byte) (*File, error) {
	f := &File{path: name, parts: []source{{path: name, data: data}}}
	if err := f.add(0, 1); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	if err := f.finish(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, nil
}

// add checks and decodes part number no of count, the last of f.parts.
func (f *File) add(no, count int) error {
	src := &f.parts[len(f.parts)-1]
	h, err := checkHeader(src.data)
	if err != nil {
		return err
	}
	if f.foreign.merge(h.foreign); len(f.foreign.Types) > 0 {
		return nil // finish refuses the file because it then knows the types of all parts
	}
	if h.tensors > 0 && !src.mapped {
		data := src.data
		if src.data, err = mapFilled(len(data), func(mem []byte) error { copy(mem, data); return nil }); err != nil {
			return err
		}
		src.mapped = true
	}
	kv, tensors, err := decode(src.data, h, no)
	if err != nil {
		return err
	}
	if err := checkSplit(kv, no, count); err != nil {
		return err
	}
	if no == 0 {
		f.kv = kv
	} else if err := f.agrees(kv); err != nil {
		return err
	}
	f.tensors = append(f.tensors, tensors...)
	return nil
}

// finish checks the parts against each other and builds the index.
func (f *File) finish() error {
	if len(f.foreign.Types) > 0 {
		return &f.foreign
	}
	if len(f.parts) > 1 {
		want, ok := f.Int(keySplitTensors)
		if !ok {
			return fmt.Errorf("key %q is missing or not an integer; expected %d, the tensors of all %d parts", keySplitTensors, len(f.tensors), len(f.parts))
		}
		if want != int64(len(f.tensors)) {
			return fmt.Errorf("key %q is %d, but the %d parts have %d tensors", keySplitTensors, want, len(f.parts), len(f.tensors))
		}
	}
	f.index = make(map[string]int, len(f.tensors))
	for i, t := range f.tensors {
		if j, ok := f.index[t.Name]; ok {
			return fmt.Errorf("tensor %q is in both %s and %s", t.Name, f.parts[f.tensors[j].Part].path, f.parts[t.Part].path)
		}
		f.index[t.Name] = i
	}
	return nil
}

// Close unmaps the model. The Data of its tensors must not be used afterwards. Tensors,
// Tensor and Mappings then return nothing; metadata stays available. A second Close has
// no effect.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	var errs []error
	for _, p := range f.parts {
		if p.mapped {
			if err := unmapFile(p.data); err != nil {
				errs = append(errs, fmt.Errorf("%s: unmap: %w", p.path, err))
			}
		}
	}
	for name, t := range f.derived {
		if err := unmapFile(t.Data); err != nil {
			errs = append(errs, fmt.Errorf("%s: unmap derived tensor %q: %w", f.path, name, err))
		}
	}
	f.parts, f.tensors, f.index, f.derived = nil, nil, nil, nil
	return errors.Join(errs...)
}

// Path is the path given to Open, or the name given to Read.
func (f *File) Path() string { return f.path }

// Mappings returns the bytes of every part, in order; tensor data are slices of
// them. After Open each mapping starts at a page boundary and ends with the
// file.
func (f *File) Mappings() [][]byte {
	all := make([][]byte, len(f.parts))
	for i, p := range f.parts {
		all[i] = p.data
	}
	return all
}

// Size is the total length of all parts in bytes.
func (f *File) Size() int64 {
	var n int64
	for _, p := range f.parts {
		n += int64(len(p.data))
	}
	return n
}

// Tensors returns all tensors in the order of the header, part after part. Callers must
// not change the slice.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor returns the tensor of that name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}
