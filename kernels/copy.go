package kernels

import "unsafe"

// copiedAtOnce is the most float32 that an op copies: 32,768 workgroups of 256, where Vulkan
// promises 65,535 (maxComputeWorkGroupCount, "Required Limits").
const copiedAtOnce = 1 << 23

// Copy copies from to to, memory of the backend of the same length that no encoded op
// uses, and flushes. The device copies if the host reads its memory slowly. An error is the
// backend's.
func Copy(b Backend, to, from []byte) error {
	if !HostOf(b).SlowReads {
		copy(to, from)
		return nil
	}
	encodeCopy(b, to, from)
	return b.Flush()
}

// encodeCopy encodes ops that copy from to to. The host copies the odd bytes.
func encodeCopy(b Backend, to, from []byte) {
	n := min(len(to), len(from))
	if n == 0 {
		return
	}
	if (uintptr(unsafe.Pointer(&to[0]))|uintptr(unsafe.Pointer(&from[0])))%4 != 0 {
		copy(to, from)
		return
	}
	copy(to[n&^3:n], from[n&^3:n])
	for at := 0; at < n&^3; at += 4 * copiedAtOnce {
		words := min(copiedAtOnce, (n-at)/4)
		b.CopyColumns(words32(to[at:], words), words32(from[at:], words), 1, words, words, words)
	}
}

// words32 is the memory of x as float32. Copies keep all bits.
func words32(x []byte, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), n)
}

// Reader reads memory of a backend for the host, through some memory of AllocHost if the
// host reads the other slowly. Free releases that.
type Reader struct {
	Backend Backend
	staged  []float32
}

// readAtOnce is the bytes of a Reader's memory.
const readAtOnce = 1 << 20

// Read copies from, memory of the backend that no encoded op uses, to memory of the host.
// It may flush. An error is the backend's.
func (r *Reader) Read(to, from []byte) error {
	if !HostOf(r.Backend).SlowReads {
		copy(to, from)
		return nil
	}
	if r.staged == nil {
		var err error
		if r.staged, err = MakeHost[float32](r.Backend, readAtOnce/4); err != nil {
			return err
		}
	}
	staged := bytesOf(r.staged)
	for len(from) > 0 {
		n := min(len(from), len(staged))
		encodeCopy(r.Backend, staged[:n], from[:n])
		if err := r.Backend.Flush(); err != nil {
			return err
		}
		copy(to, staged[:n])
		to, from = to[n:], from[n:]
	}
	return nil
}

// Free releases the memory of the reader.
func (r *Reader) Free() {
	Release(r.Backend, r.staged)
	r.staged = nil
}
