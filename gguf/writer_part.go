package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// The numbers GGUF stores for the type of a metadata value (ggml.h, gguf_type).
const (
	kindUint16  = 2
	kindUint32  = 4
	kindInt32   = 5
	kindFloat32 = 6
	kindBool    = 7
	kindString  = 8
	kindArray   = 9
	kindUint64  = 10
)

// The keys of a split file, with the value types that llama.cpp requires
// (uint16, uint16, int32).
const (
	keySplitNo      = "split.no"
	keySplitCount   = "split.count"
	keySplitTensors = "split.tensors.count"
)

// part is one file of the set, laid out.
type part struct {
	header  []byte // padded to the alignment: the data section starts at its end
	tensors []writerTensor
	offsets []int64 // of tensors[i] in the data section
	size    int64   // of the data section, padded
}

func padded(n int64) int64 {
	return (n + WriterAlignment - 1) / WriterAlignment * WriterAlignment
}

// plan lays out the parts. Part i ends at the first tensor with which the bytes
// so far reach (i+1)/parts of the total, and holds at least one tensor.
func (w *Writer) plan() ([]part, error) {
	if w.parts > 1 && len(w.tensors) < w.parts {
		return nil, fmt.Errorf("%d tensors do not fill %d parts: use fewer", len(w.tensors), w.parts)
	}
	total := float64(w.DataBytes())
	parts := make([]part, 0, w.parts)
	next, done := 0, float64(0)
	for i := range w.parts {
		p, first := part{}, next
		spare := len(w.tensors) - (w.parts - 1 - i) // one tensor for each later part
		for next < spare {
			if i < w.parts-1 && next > first && done >= total*float64(i+1)/float64(w.parts) {
				break
			}
			t := w.tensors[next]
			p.offsets = append(p.offsets, p.size)
			p.size += padded(t.size)
			done += float64(t.size)
			next++
		}
		p.tensors = w.tensors[first:next]
		p.header = w.header(i, p)
		parts = append(parts, p)
	}
	return parts, nil
}

func (w *Writer) header(no int, p part) []byte {
	var kvs []keyValue
	if no == 0 {
		kvs = slices.Clone(w.kvs)
	}
	if w.parts > 1 {
		kvs = append(kvs,
			keyValue{keySplitNo, scalar(kindUint16, uint16(no))},
			keyValue{keySplitCount, scalar(kindUint16, uint16(w.parts))},
			keyValue{keySplitTensors, scalar(kindInt32, int32(len(w.tensors)))})
	}
	b := []byte("GGUF")
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(kvs)))
	for _, kv := range kvs {
		b = append(appendString(b, kv.key), kv.bytes...)
	}
	for i, t := range p.tensors {
		b = appendString(b, t.name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.shape)))
		for _, n := range t.shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.typ))
		b = binary.LittleEndian.AppendUint64(b, uint64(p.offsets[i]))
	}
	return append(b, make([]byte, padded(int64(len(b)))-int64(len(b)))...)
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

func scalar(kind uint32, v any) []byte {
	b := binary.LittleEndian.AppendUint32(nil, kind)
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic(err) // only fixed-size values get here
	}
	return b
}

func array(kind uint32, n int, vs any) []byte {
	b := binary.LittleEndian.AppendUint32(nil, kindArray)
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b, err := binary.Append(b, binary.LittleEndian, vs)
	if err != nil {
		panic(err) // only slices of fixed-size values get here
	}
	return b
}

func encodeValue(value any) ([]byte, error) {
	switch v := value.(type) {
	case uint32:
		return scalar(kindUint32, v), nil
	case int32:
		return scalar(kindInt32, v), nil
	case uint64:
		return scalar(kindUint64, v), nil
	case float32:
		return scalar(kindFloat32, v), nil
	case bool:
		return scalar(kindBool, v), nil
	case string:
		return appendString(binary.LittleEndian.AppendUint32(nil, kindString), v), nil
	case []int32:
		return array(kindInt32, len(v), v), nil
	case []uint32:
		return array(kindUint32, len(v), v), nil
	case []uint64:
		return array(kindUint64, len(v), v), nil
	case []float32:
		return array(kindFloat32, len(v), v), nil
	case []bool:
		return array(kindBool, len(v), v), nil
	case []string:
		b := array(kindString, len(v), []byte{})
		for _, s := range v {
			b = appendString(b, s)
		}
		return b, nil
	}
	return nil, fmt.Errorf("a value of type %T: want uint32, int32, uint64, float32, bool, string or a slice of string, int32, uint32, uint64, float32 or bool", value)
}

// writeFile writes the part to the empty file f. Each tensor is written at its
// own offset, so holes stay holes and several tensors are made at once.
func (p *part) writeFile(f *os.File, workers int) error {
	start := int64(len(p.header))
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Truncate(start + p.size); err != nil {
		return err
	}
	if _, err := f.Write(p.header); err != nil {
		return err
	}
	var (
		group sync.WaitGroup
		lock  sync.Mutex // guards next and first
		next  int
		first error
	)
	take := func() int {
		lock.Lock()
		defer lock.Unlock()
		if first != nil {
			return len(p.tensors)
		}
		next++
		return next - 1
	}
	for range min(workers, len(p.tensors)) {
		group.Go(func() {
			buffered := bufio.NewWriterSize(nil, 1<<18)
			for i := take(); i < len(p.tensors); i = take() {
				if p.tensors[i].fill == nil {
					continue
				}
				buffered.Reset(io.NewOffsetWriter(f, start+p.offsets[i]))
				if err := p.tensors[i].write(buffered); err != nil {
					lock.Lock()
					if first == nil {
						first = err
					}
					lock.Unlock()
				}
			}
		})
	}
	group.Wait()
	return first
}

// write runs fill and requires it to write exactly the tensor's size.
func (t *writerTensor) write(buffered *bufio.Writer) error {
	c := &countingWriter{w: buffered, limit: t.size}
	err := t.fill(c)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil && c.n != t.size {
		err = fmt.Errorf("fill wrote %d bytes of %d", c.n, t.size)
	}
	if err != nil {
		return fmt.Errorf("tensor %q: %w", t.name, err)
	}
	return nil
}

// countingWriter counts the bytes written and rejects more than limit.
type countingWriter struct {
	w     io.Writer
	n     int64
	limit int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > c.limit-c.n {
		return 0, fmt.Errorf("fill writes more than %d bytes", c.limit)
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
