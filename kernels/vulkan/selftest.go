//go:build linux && cgo

package vulkan

/*
#include <stdlib.h>
#include <string.h>
#include "host.h"
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// arithmetic is what the device does where Vulkan leaves it a choice.
type arithmetic struct {
	fused     bool // fma() rounds once
	denormals bool // subnormal numbers are kept
	divides   bool // quotients are correctly rounded, as far as tried
	roots     bool // square roots likewise
}

func (a arithmetic) String() string {
	name := func(have bool, yes, no string) string {
		if have {
			return yes
		}
		return no
	}
	return name(a.fused, "fused", "unfused") + " " + name(a.denormals, "with subnormals", "without subnormals") +
		name(a.divides, "", ", quotients not exact") + name(a.roots, "", ", roots not exact")
}

// Of selftest.comp: threads, and words of each.
const (
	testThreads = 64
	testWords   = 16
)

// selfTest runs selftest.comp and returns what it shows, or an error where the kernels
// could not be right.
func (d *device) selfTest() (arithmetic, error) {
	var a arithmetic
	number, _, err := d.Pipeline("selftest", "selftest")
	if err != nil {
		return a, err
	}
	word, err := d.runSelfTest(number)
	if err != nil {
		return a, err
	}
	return judge(word)
}

// runSelfTest submits the kernel and returns the words of all threads.
func (d *device) runSelfTest(number int) ([]uint32, error) {
	table := (*C.rmg_device)(d.Table())
	out := C.rmg_alloc(table, 4*testWords*testThreads, 1)
	if out.object == nil {
		return nil, fmt.Errorf("%s", C.GoString(C.rmg_why(table)))
	}
	defer C.rmg_release(table, out)
	c := (*C.rmg_command)(C.calloc(1, C.sizeof_rmg_command))
	defer C.free(unsafe.Pointer(c))
	label := C.CString("the self-test")
	defer C.free(unsafe.Pointer(label))
	c.pipeline, c.op, c.bindings, c.args_bytes = C.int32_t(number), label, 1, 4
	c.groups, c.threads = [3]C.uint32_t{1, 1, 1}, [3]C.uint32_t{testThreads, 1, 1}
	c.binding[0].object = out.object
	*(*float32)(unsafe.Pointer(&c.args[0])) = 1
	var text [1024]C.char
	first := C.uint32_t(0)
	if C.rmg_encode(table, c, &first, 1, label, &text[0], C.size_t(len(text))) != 0 || C.rmg_commit(table, &text[0], C.size_t(len(text))) != 0 ||
		C.rmg_wait(table, C.rmg_wait_policy{deadline_ms: 60000}, &text[0], C.size_t(len(text))) != 0 {
		return nil, fmt.Errorf("%s", C.GoString(&text[0]))
	}
	words := make([]uint32, testWords*testThreads)
	copy(words, unsafe.Slice((*uint32)(out.contents), len(words)))
	return words, nil
}

// judge compares the words of the threads, [word][thread], with what they must be.
func judge(word []uint32) (arithmetic, error) {
	at := func(w, t int) uint32 { return word[w*testThreads+t] }
	a := arithmetic{fused: true, denormals: true, divides: true, roots: true}
	v := make([]float32, testThreads)
	for t := range v {
		v[t] = 1 / float32(3+2*t)
	}
	var group float32
	for s := range testThreads / 32 {
		group += butterfly(v[32*s:][:32])
	}
	for t := range testThreads {
		switch at(0, t) {
		case math.Float32bits(1.0 / (1 << 24)):
		case 0:
			a.fused = false
		default:
			return a, fmt.Errorf("fma() gives %v", math.Float32frombits(at(0, t)))
		}
		a.denormals = a.denormals && at(2, t) == 5 && at(3, t) == 0x00400000
		a.divides = a.divides && at(4, t) == math.Float32bits(v[t])
		a.roots = a.roots && at(5, t) == math.Float32bits(float32(math.Sqrt(float64(math.Float32frombits(at(4, t))))))
	}
	if !a.divides { // the sums are those of its own quotients
		group = 0
		for t := range v {
			v[t] = math.Float32frombits(at(4, t))
		}
		for s := range testThreads / 32 {
			group += butterfly(v[32*s:][:32])
		}
	}
	for t := range testThreads {
		lane, first := t%32, t/32*32
		largest := v[first]
		any40 := uint32(0)
		if first == 32 {
			any40 = 1
		}
		want := []struct {
			word int
			bits uint32
			what string
		}{
			{1, 0, "a product and a sum are fused in spite of \"precise\""},
			{6, math.Float32bits(butterfly(v[first:][:32])), "the sum of 32 lanes"},
			{7, math.Float32bits(butterfly(v[t/16*16:][:16])), "the sum of 16 lanes"},
			{8, uint32(32*first + 31*16), "the sum of integers"},
			{9, uint32(lane*first + lane*(lane-1)/2), "the sum of the lanes before"},
			{10, math.Float32bits(largest), "the maximum"},
			{11, uint32(first + 31 - lane), "the value of another lane"},
			{12, uint32(t ^ 5), "the value of a partner"},
			{13, any40, "whether any lane is true"},
			{14, math.Float32bits(group), "the sum of a workgroup"},
			{15, uint32(lane | t/32<<8 | (first+31)<<16 | first<<24), "the numbers of lanes"},
		}
		for _, w := range want {
			if at(w.word, t) != w.bits {
				return a, fmt.Errorf("%s is wrong in thread %d: %#x in place of %#x", w.what, t, at(w.word, t), w.bits)
			}
		}
	}
	return a, nil
}

// butterfly is the sum in the order of lanes_sum.
func butterfly(v []float32) float32 {
	s := append([]float32(nil), v...)
	for m := len(s) / 2; m > 0; m /= 2 {
		for i := range m {
			s[i] += s[i+m]
		}
	}
	return s[0]
}
