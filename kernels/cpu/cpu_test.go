//go:build cgo

package cpu_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

func TestAlloc(t *testing.T) {
	b := openLevel(t, 1, cpu.Portable)
	for _, n := range []int{1, 63, 64, 65, 4096, 1<<20 - 1, 1 << 20, 5<<20 + 3} {
		for range 3 { // memory that has been used is zeroed again
			mem, err := b.Alloc(n)
			require.NoError(t, err)
			require.Len(t, mem, n)
			require.Zero(t, uintptr(unsafe.Pointer(&mem[0]))%64)
			for i := range mem {
				if mem[i] != 0 {
					t.Fatalf("byte %d of %d is %d", i, n, mem[i])
				}
				mem[i] = 0xa5
			}
			b.Free(mem)
		}
	}
	// Untouched pages cost nothing.
	large, err := b.Alloc(1 << 32)
	require.NoError(t, err)
	large[1<<31] = 1
	b.Free(large)

	none, err := b.Alloc(0)
	require.NoError(t, err)
	require.Empty(t, none)
	b.Free(none)
	_, err = b.Alloc(-1)
	require.Error(t, err)
	_, err = b.Alloc(1 << 62)
	require.Error(t, err)

	mem, err := b.Alloc(100)
	require.NoError(t, err)
	kerneltest.RequireMisuse(t, "Free", "part", func() { b.Free(mem[:50]) })
	kerneltest.RequireMisuse(t, "Free", "inside", func() { b.Free(mem[1:]) })
	b.Free(mem)
	kerneltest.RequireMisuse(t, "Free", "twice", func() { b.Free(mem) })
}

func TestNew(t *testing.T) {
	b, err := cpu.New(0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, b.Threads(), 1)
	require.Equal(t, cpu.Levels()[len(cpu.Levels())-1], b.Level())
	require.Contains(t, b.Name(), b.Level().String())
	require.NoError(t, b.Map([]byte{1}))
	require.NoError(t, b.Flush())
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	require.Error(t, b.Flush())
	require.Error(t, b.Map([]byte{1}))
	_, err = b.Alloc(8)
	require.Error(t, err)
	kerneltest.RequireMisuse(t, "MatMul", "closed", func() { b.MatMul(nil, 1) })

	for _, threads := range []int{-1, 4097} {
		_, err := cpu.New(threads)
		require.ErrorContains(t, err, "threads")
	}
	for _, level := range []cpu.Level{-1, cpu.NEON + 1} {
		_, err := cpu.NewLevel(1, level)
		require.ErrorContains(t, err, "level")
	}
}

func TestMatMulMisuse(t *testing.T) {
	b := openLevel(t, 1, cpu.Portable)
	r := rand.New(rand.NewPCG(1, 2))
	w := weight(t, b, gguf.Q8_0, kerneltest.Blocks(r, gguf.Q8_0, 8*64, 0.1), 1, 8, 64)
	x, out := zeros(t, b, 2*64), zeros(t, b, 2*8)
	call := func(edit func(w *kernels.Weight), x, out []float32, rows int) func() {
		bad := w
		edit(&bad)
		return func() { b.MatMul(x, rows, kernels.Product{W: bad, Out: out}) }
	}
	same := func(*kernels.Weight) {}
	require.NotPanics(t, call(same, x, out, 2))
	require.NotPanics(t, call(same, nil, nil, 0))
	for name, f := range map[string]func(){
		"x short":       call(same, x[:127], out, 2),
		"out short":     call(same, x, out[:15], 2),
		"rows negative": call(same, x, out, -1),
		"no data":       call(func(w *kernels.Weight) { w.Data = nil }, x, out, 1),
		"data short":    call(func(w *kernels.Weight) { w.Data = w.Data[:len(w.Data)-1] }, x, out, 1),
		"half a block":  call(func(w *kernels.Weight) { w.Cols = 48 }, x, out, 1),
		"unknown type":  call(func(w *kernels.Weight) { w.Type = 77 }, x, out, 1),
		"I32":           call(func(w *kernels.Weight) { w.Type, w.Cols = gguf.I32, 1 }, x, out, 1),
		"a stack":       call(func(w *kernels.Weight) { w.Slices, w.Rows, w.SliceBytes = 2, 4, 4*68 }, x, out, 1),
		"no rows":       call(func(w *kernels.Weight) { w.Rows = 0 }, x, out, 1),
	} {
		kerneltest.RequireMisuse(t, "MatMul", name, f)
	}
	narrow := weight(t, b, gguf.Q8_0, kerneltest.Blocks(r, gguf.Q8_0, 8*32, 0.1), 1, 8, 32)
	kerneltest.RequireMisuse(t, "MatMul", "columns differ", func() {
		b.MatMul(x, 1, kernels.Product{W: w, Out: out}, kernels.Product{W: narrow, Out: out})
	})
	kerneltest.RequireMisuse(t, "MatMulGrouped", "x is short", func() { b.MatMulGrouped(out, x[:100], 1, w.RowGroups(2)) })
	kerneltest.RequireMisuse(t, "Weight", "groups", func() { w.RowGroups(3) })
	kerneltest.RequireMisuse(t, "Embed", "id", func() { b.Embed(x, w, kerneltest.OnDevice(t, b, []int32{8})) })
	kerneltest.RequireMisuse(t, "Embed", "negative id", func() { b.Embed(x, w, kerneltest.OnDevice(t, b, []int32{-1})) })
	kerneltest.RequireMisuse(t, "Embed", "out", func() { b.Embed(x[:63], w, kerneltest.OnDevice(t, b, []int32{1})) })
}

// Many loops of a few microseconds, with more threads than processors and with
// pauses in which the threads fall asleep between them.
func TestPoolManySmallLoops(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	data := kerneltest.Blocks(r, gguf.Q8_0, 256*64, 0.1)
	for _, threads := range []int{2, 3, 16} {
		b := openLevel(t, threads, cpu.Levels()[len(cpu.Levels())-1])
		w, other := weight(t, b, gguf.Q8_0, data, 1, 256, 64), weight(t, b, gguf.Q8_0, data, 1, 64, 64)
		x, out := kerneltest.OnDevice(t, b, kerneltest.Normal(r, 64, 1)), zeros(t, b, 256)
		want := kerneltest.Bits(multiply(t, b, w, x, 1))
		for i := range 5000 {
			clear(out)
			b.MatMul(x, 1, kernels.Product{W: w, Out: out})
			if i%50 == 0 {
				require.Equal(t, want, kerneltest.Bits(out), "loop %d", i)
				multiply(t, b, other, x, 1)
			}
		}
	}
}

// Backends are created and closed repeatedly; closing one joins its threads.
func TestOpenClose(t *testing.T) {
	for range 50 {
		b, err := cpu.New(4)
		require.NoError(t, err)
		require.NoError(t, b.Close())
	}
}

// The C code under the address and undefined behaviour sanitizers, driven by
// testdata/driver.c, which also checks what Go cannot reach: the exponential,
// the float16 conversions and the approximate scores at every level.
func TestSanitizers(t *testing.T) {
	testenv.Need(t, testenv.Full, "the kernels under the sanitizers")
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("NOT CHECKED: no gcc here")
	}
	program := compile(t, cc, "testdata/driver.c",
		// Optimising the unrolled kernels with all checks takes minutes.
		"-O0", "-g", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
		// Checks as calls: inline checks are slow to compile.
		"--param=asan-instrumentation-with-call-threshold=0")
	out, err := exec.Command(program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "all checks passed")
}

// compile makes a program of the C file that has main and of the kernels.
func compile(t testing.TB, cc, main string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	flags = append([]string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-I."}, flags...)
	sources := []string{
		main, "pool.c", "cpu_features.c", "dequant.c", "matmul.c", "choice.c", "experts.c", "matmul_portable.c", "matmul_avx2.c",
		"matmul_avx512.c", "gemv_avx2.c", "gemv_avx512.c", "gemv_lanes_avx512.c", "matmul_amx_few.c", "approx_scores.c", "approx_scores_amx.c",
		"matmul_neon.c", "matmul_neon_i8mm.c", "memory_bandwidth.c",
	}
	objects, failures := make([]string, len(sources)), make([]error, len(sources))
	var compilers sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for i, source := range sources {
		objects[i] = filepath.Join(dir, filepath.Base(source)+".o")
		compilers.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			out, err := exec.Command(cc, append(slices.Clone(flags), "-c", "-o", objects[i], source)...).CombinedOutput()
			if err != nil {
				failures[i] = fmt.Errorf("%s: %w\n%s", source, err, out)
			}
		})
	}
	compilers.Wait()
	require.NoError(t, errors.Join(failures...))
	program := filepath.Join(dir, "program")
	link := append(slices.Concat(flags, []string{"-o", program}), objects...)
	out, err := exec.Command(cc, append(link, "-lm", "-lpthread")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}
