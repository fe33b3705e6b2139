//go:build linux && cgo

package vulkan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/vulkan"
	"ringmaster/kernels/vulkan/vulkantest"
)

// faulty opens the software device with calls that fail when they are told to.
func faulty(t *testing.T) (kernels.Backend, *vulkantest.Faults) {
	open(t) // there is a device
	f := vulkantest.NewFaults(t)
	b, err := vulkan.Open(vulkan.Options{Device: "llvmpipe"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, f
}

// TestDeviceLost: an error names the device, the command buffer, what happened and what to
// do; it stays, whatever is computed afterwards, and no wait hangs.
func TestDeviceLost(t *testing.T) {
	for fault, what := range map[string]string{vulkantest.Submit: "the submission", vulkantest.Wait: "the execution"} {
		t.Run(fault, func(t *testing.T) {
			b, f := faulty(t)
			x := kerneltest.OnDevice(t, b, make([]float32, 64))
			b.Add(x, x, x, len(x))
			require.NoError(t, b.Flush())
			f.Set(fault)
			b.Add(x, x, x, len(x))
			err := b.Flush()
			for _, want := range []string{what + ` of command buffer "`, "Add to Add", "failed on llvmpipe", "VK_ERROR_DEVICE_LOST", "restart the program, use a smaller --max-batch", "dmesg"} {
				require.ErrorContains(t, err, want)
			}
			f.Set(vulkantest.None)
			b.Add(x, x, x, len(x))
			require.Equal(t, err, b.Flush(), "no result is valid any more")
		})
	}
}

// TestOutOfMemory: an allocation that the device refuses says how many bytes of what, on which
// device and what to do, and does no harm; weights that it refuses are named.
func TestOutOfMemory(t *testing.T) {
	b, f := faulty(t)
	x := kerneltest.OnDevice(t, b, make([]float32, 64))
	requireRefusal := func(err error, wants ...string) {
		for _, want := range append(wants, `the GPU "llvmpipe`, " bytes of ", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "the heap has ", "use a smaller --ctx or --max-batch") {
			require.ErrorContains(t, err, want)
		}
	}
	f.Set(vulkantest.Memory(0))
	_, err := b.Alloc(40 << 20)
	requireRefusal(err, "cannot allocate 41943040 bytes")
	b.Add(x, x, x, len(x))
	require.NoError(t, b.Flush())
	f.Set(vulkantest.None)
	large, err := b.Alloc(40 << 20)
	require.NoError(t, err)
	b.Free(large)

	const rows, cols = 4, 64
	w := kernels.Weight{Name: "blk.0.w", Type: gguf.F32, Cols: cols, Rows: rows, Slices: 1, SliceBytes: 4 * rows * cols}
	w.Data = mapped(t, make([]byte, w.SliceBytes), b)
	f.Set(vulkantest.Memory(0))
	out := kerneltest.OnDevice(t, b, make([]float32, rows))
	b.MatMul(x, 1, kernels.Product{W: w, Out: out})
	requireRefusal(b.Flush(), `weight "blk.0.w"`)
}

// TestLargestBuffer: buffers are as large as the device allows, which may be less than what it
// gives at once as memory.
func TestLargestBuffer(t *testing.T) {
	open(t) // there is a device
	f := vulkantest.NewFaults(t)
	const most = 64 << 20
	f.Set(vulkantest.Buffer(most))
	b, err := vulkan.Open(vulkan.Options{Device: "llvmpipe"})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	_, err = b.Alloc(most / 2)
	require.NoError(t, err)
	_, err = b.Alloc(most + 1)
	require.ErrorContains(t, err, "the largest buffer of the device has 67108864")
}

// TestFaultsAtOpen: a device that fails in its self-test or has no memory is unsuitable, so that
// another backend can do, but is a GPU.
func TestFaultsAtOpen(t *testing.T) {
	open(t) // there is a device
	f := vulkantest.NewFaults(t)
	for fault, want := range map[string]string{
		vulkantest.Submit: "VK_ERROR_DEVICE_LOST", vulkantest.Wait: "VK_ERROR_DEVICE_LOST",
		vulkantest.Memory(0): "VK_ERROR_OUT_OF_DEVICE_MEMORY", vulkantest.Memory(1): "VK_ERROR_OUT_OF_DEVICE_MEMORY", vulkantest.Memory(2): "VK_ERROR_OUT_OF_DEVICE_MEMORY",
	} {
		f.Set(fault)
		_, err := vulkan.Open(vulkan.Options{Device: "llvmpipe"})
		var unsuitable *vulkan.UnsuitableError
		require.ErrorAs(t, err, &unsuitable, fault)
		require.False(t, unsuitable.NoGPU)
		require.ErrorContains(t, err, `the GPU "llvmpipe`)
		require.ErrorContains(t, err, "cannot run the kernels")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "--backend cpu")
	}
	f.Set(vulkantest.None)
	b, err := vulkan.Open(vulkan.Options{Device: "llvmpipe"})
	require.NoError(t, err)
	require.NoError(t, b.Close())
}
