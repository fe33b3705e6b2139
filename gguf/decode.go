package gguf

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/ollama/ollama/fs/ggml"
)

// decode reads the header of a file with the library's decoder. data is the whole
// contents of the file, and h must come from checkHeader(data). The tensors' Data are
// slices of data; part becomes their Part.
func decode(data []byte, h header, part int) (kv ggml.KV, tensors []Tensor, err error) {
	// checkHeader rejects what is known to make the decoder panic. A later version of the
	// decoder may panic for another reason; that is reported as an error of the file too.
	defer func() {
		if r := recover(); r != nil {
			kv, tensors, err = nil, nil, fmt.Errorf("header cannot be decoded: %v", r)
		}
	}()
	// The decoder only seeks over the data, so the reader has the header and the length of
	// the file.
	head := io.NewSectionReader(bytes.NewReader(data[:h.end]), 0, int64(len(data)))
	g, err := ggml.Decode(head, -1)
	if err != nil {
		return nil, nil, fmt.Errorf("header cannot be decoded: %w", err)
	}
	// The decoder sets general.parameter_count itself, over the file's own value.
	kv = g.KV()
	delete(kv, keyParameterCount)
	if h.parameterCount != nil {
		kv[keyParameterCount] = h.parameterCount
	}
	items := g.Tensors()
	switch {
	case kv.Len() != h.keys:
		return nil, nil, fmt.Errorf("decoder found %d keys; expected %d", kv.Len(), h.keys)
	case len(items.Items()) != h.tensors:
		return nil, nil, fmt.Errorf("decoder found %d tensors; expected %d", len(items.Items()), h.tensors)
	case items.Offset != uint64(h.data):
		return nil, nil, fmt.Errorf("decoder found the data section at %d; expected it at %d", items.Offset, h.data)
	}
	tensors = make([]Tensor, 0, h.tensors)
	for _, item := range items.Items() {
		t := Tensor{Name: item.Name, Type: Type(item.Kind), Part: part, Shape: make([]int64, len(item.Shape))}
		size := int64(t.Type.BlockBytes())
		for i, n := range item.Shape {
			t.Shape[i] = int64(n)
			if i == 0 {
				n /= uint64(t.Type.BlockElements())
			}
			size *= int64(n)
		}
		start := h.data + int64(item.Offset)
		// The capacity ends with the tensor, so that an append copies instead of
		// overwriting the next tensor.
		t.Data = slices.Clip(data[start : start+size])
		tensors = append(tensors, t)
	}
	return kv, tensors, nil
}
