//go:build linux && cgo

package vulkan_test

import (
	"cmp"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/vulkan"
)

// kept is a backend that the cases share, because opening one takes longer than most cases.
type kept struct{ *vulkan.Backend }

// Slow makes kerneltest.Run take fewer chunks.
func (kept) Slow() {}

// Close leaves the backend open for the next case.
func (kept) Close() error { return nil }

var opened = sync.OnceValues(func() (*vulkan.Backend, error) {
	return vulkan.Open(vulkan.Options{Device: cmp.Or(os.Getenv(vulkan.DeviceVariable), "llvmpipe")})
})

func shared(t testing.TB) kernels.Backend {
	b, err := opened()
	if err != nil {
		t.Skip("NOT CHECKED: no software device for Vulkan:", err)
	}
	require.NoError(t, b.Flush())
	return kept{b}
}

// compiling is why tests run in the full form alone.
const compiling = "compiling the kernels for the software device, which takes tens of seconds"

// The ops on the software device against the reference, by family.
func TestNorms(t *testing.T) {
	kerneltest.Run(t, shared, "RMSNorm", "LayerNorm", "RoPE", "RoPE, normed", "Hadamard")
}
func TestElements(t *testing.T) {
	kerneltest.Run(t, shared, "Add", "Clear", "ToFloat16", "FromFloat16", "SumSlots", "SumExact", "RoundSums", "Gather")
}
func TestHyper(t *testing.T) {
	kerneltest.Run(t, shared, "HCInit", "HCMix", "HCCollapse", "HCExpand", "HCHead", "HCGate")
}
func TestCache(t *testing.T) {
	testenv.Need(t, testenv.Full, compiling)
	kerneltest.Run(t, shared, "StoreKV", "Compress")
}

func TestRoute(t *testing.T) {
	testenv.Need(t, testenv.Full, compiling)
	kerneltest.Run(t, shared, "Route", "ExpertMask", "ExpertCompact")
}

func TestIndex(t *testing.T) {
	testenv.Need(t, testenv.Full, compiling)
	kerneltest.Run(t, shared, "IndexTopK")
}

func TestAttend(t *testing.T) {
	testenv.Need(t, testenv.Full, compiling)
	kerneltest.Run(t, shared, "Attend")
}

// Their bits are those of the CPU: see products_test.go. Here tokens come in chunks of any size.
func TestMatMul(t *testing.T) {
	testenv.Need(t, testenv.Full, compiling)
	kerneltest.Run(t, shared, "MatMul", "NormMatMul", "MatMulGrouped", "Embed")
}

func TestExperts(t *testing.T) {
	testenv.Need(t, testenv.Full, compiling)
	kerneltest.Run(t, shared, "ExpertGateUp", "ExpertDown")
}
