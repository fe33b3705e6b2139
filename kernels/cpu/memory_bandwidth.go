//go:build cgo

package cpu

/*
#include "cpu.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// streamBytes is the smallest buffer of the benchmark. It is this large because reading
// it must take long compared with starting the threads, and because most caches are
// smaller.
const streamBytes = 1 << 30

// Stream measures memory bandwidth: how fast the backend's threads can read
// when they do nothing else. Create it with NewStream. Use it from the
// goroutine of the backend, between ops.
type Stream struct {
	b   *Backend
	mem []byte
}

// NewStream allocates the buffer to be read: 1 GiB, or four times the last-level cache if
// that is more, but at most a quarter of the host's free bytes of memory. It fails if
// that is less than four times the cache, because it would then measure the cache. Free
// the buffer with Close.
func (b *Backend) NewStream(free int64) (*Stream, error) {
	if b.pool == nil {
		return nil, errClosed
	}
	n, err := StreamSize(free, int64(C.rm_cache_bytes()))
	if err != nil {
		return nil, err
	}
	mem, err := b.Alloc(int(n))
	if err != nil {
		return nil, err
	}
	C.rm_stream_touch(b.pool, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(mem))), C.int64_t(n))
	return &Stream{b: b, mem: mem}, nil
}

// StreamSize is the length of the buffer on a host with a last-level cache of
// the given size in bytes, 0 if unknown, and free bytes of memory. It fails if a
// quarter of these is less than four times the cache.
func StreamSize(free, cache int64) (int64, error) {
	if cache == 0 {
		cache = 64 << 20
	}
	n := min(max(streamBytes, 4*cache), free/4)
	if n < 4*cache {
		return 0, fmt.Errorf("a quarter of the %d MiB of free memory is less than four times the cache of %d MiB", free>>20, cache>>20)
	}
	return n / 64 * 64, nil
}

// Read reads the buffer once and returns the bandwidth in bytes per second.
func (s *Stream) Read() float64 {
	start := time.Now()
	s.b.ReadStream(s.mem)
	return float64(len(s.mem)) / time.Since(start).Seconds()
}

// ReadStream reads mem, a multiple of 64 bytes, once and returns the sum of its
// 64-bit words, modulo 2^64: each thread reads its part.
func (b *Backend) ReadStream(mem []byte) uint64 {
	b.begin("Stream")
	return uint64(C.rm_stream(b.pool, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(mem))), C.int64_t(len(mem))))
}

// Close frees the buffer.
func (s *Stream) Close() {
	if s.b.pool != nil && s.mem != nil {
		s.b.Free(s.mem)
	}
	s.mem = nil
}
