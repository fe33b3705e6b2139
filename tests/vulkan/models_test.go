//go:build linux && cgo

// Package vulkan_test runs whole models on the Vulkan backend beside the CPU's.
package vulkan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/vulkan"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
	"ringmaster/tests/whole"
)

// open opens Mesa's software device.
func open(t testing.TB) kernels.Backend {
	b, err := vulkan.Open(vulkan.Options{Device: "llvmpipe"})
	if err != nil {
		t.Skip("NOT CHECKED: no software device for Vulkan:", err)
	}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// each runs a check on a small model of each architecture; in the fast form on one, because
// kernels are compiled for a CPU.
func each(t *testing.T, check func(t *testing.T, f *gguf.File)) {
	for _, m := range []struct {
		preset string
		edit   func(*synthetic.Config)
	}{{"ds2-tiny", whole.ShrinkLatent}, {"tiny", whole.Shrink}, {"glm5-tiny", whole.ShrinkSparse}} {
		if m.preset != "ds2-tiny" && !testenv.Rest(t, testenv.Full, m.preset+" on the software device") {
			continue
		}
		t.Run(m.preset, func(t *testing.T) { check(t, whole.Preset(t, m.preset, m.edit)) })
	}
}

// TestLogits: prefilled in chunks and then one by one, logits are the CPU's but for float32
// rounding, and so are nearly all best tokens.
func TestLogits(t *testing.T) {
	each(t, func(t *testing.T, f *gguf.File) {
		o := decoder.OpenOptions{MaxTokens: 64}
		onCPU, onDevice := whole.Open(t, f, whole.OpenCPU(t), o), whole.Open(t, f, open(t), o)
		ids := whole.RandomIDs(onCPU.Info().Vocab, 60)
		want, err := whole.Run(t, onCPU, ids, 40, 1, 10)
		require.NoError(t, err)
		got, err := whole.Run(t, onDevice, ids, 40, 1, 10)
		require.NoError(t, err)
		d, others := whole.ByToken(want, got), 0
		for i := range want {
			if whole.Argmax(want[i]) != whole.Argmax(got[i]) {
				others++
			}
		}
		t.Logf("difference of a token: median %.2g, nine in ten below %.2g, all %.2g of the deviation; %d of %d best tokens differ",
			d[len(d)/2], d[len(d)*9/10], d[len(d)-1], others, len(ids))
		require.Less(t, d[len(d)/2], 0.01)
		require.Less(t, d[len(d)*9/10], 0.1)
		require.LessOrEqual(t, others, 2)
	})
}

// TestRanks: two or three ranks that reduce exactly give the bits of one, whatever is
// divided; with float16 sums they agree with each other, and with one rank up to
// rounding.
func TestRanks(t *testing.T) {
	testenv.Need(t, testenv.Full, "models of 12 ranks on the software device")
	each(t, func(t *testing.T, f *gguf.File) {
		for _, reduce := range []parallel.Reduce{parallel.Exact, parallel.Sum} {
			o := decoder.OpenOptions{MaxTokens: 64, Reduce: reduce}
			one := whole.Open(t, f, open(t), o)
			ids := whole.RandomIDs(one.Info().Vocab, 30)
			want, err := whole.Run(t, one, ids, 20)
			require.NoError(t, err)
			for how, n := range map[parallel.Share]int{parallel.ShareExperts: 2, parallel.ShareAll: 3} {
				var backends []kernels.Backend
				for range n {
					backends = append(backends, open(t))
				}
				got, err := whole.Ranks(t, how, f, backends, o, ids, 20)
				require.NoError(t, err)
				if reduce == parallel.Exact {
					require.True(t, whole.Same(want, got), "%v: the ranks differ from one", how)
				} else {
					require.Less(t, whole.Difference(want, got), 0.02, "%v", how)
				}
			}
		}
	})
}
