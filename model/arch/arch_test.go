package arch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
)

// TestRegistry: the file's architecture decides what plans and opens it.
func TestRegistry(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	plan, err := arch.Plan(f, decoder.OpenOptions{Context: 128, MaxTokens: 8}, 1)
	require.NoError(t, err)
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	m, err := arch.Open(f, b, decoder.OpenOptions{Context: 128, MaxTokens: 8})
	require.NoError(t, err)
	require.Equal(t, plan.PerSequence(), m.SequenceBytes(128))
	require.Equal(t, f.Architecture(), m.Info().Architecture)
	require.NoError(t, m.Close())

	_, err = arch.Open(f, b, decoder.OpenOptions{Context: 1 << 40})
	require.ErrorContains(t, err, "the file allows 1 to")
	_, err = arch.Open(f, b, decoder.OpenOptions{MaxTokens: -1})
	require.ErrorContains(t, err, "MaxTokens is -1")
}

// TestUnknownArchitecture: the error names the file's architecture and those that run.
func TestUnknownArchitecture(t *testing.T) {
	f := decodertest.Header(t, map[string]any{"general.architecture": "llama"})
	_, err := arch.Plan(f, decoder.OpenOptions{}, 1)
	require.ErrorContains(t, err, `is a Llama model (architecture "llama"); Ringmaster runs DeepSeek V2 to V4.1, Kimi K2, GLM-4.7-Flash and GLM-5`)
	m, err := arch.Open(f, nil, decoder.OpenOptions{})
	require.ErrorContains(t, err, "is a Llama model")
	require.Nil(t, m)
}

// TestNoModels: a file that says itself to be no model is told by that, also if its
// architecture is one that runs.
func TestNoModels(t *testing.T) {
	for kind, says := range map[string]string{"adapter": "an adapter (LoRA)", "imatrix": "an importance matrix", "mmproj": "an encoder of images"} {
		for _, name := range []string{"deepseek2", "clip", ""} {
			kv := map[string]any{"general.type": kind}
			if name != "" {
				kv["general.architecture"] = name
			}
			err := arch.Check(decodertest.Header(t, kv))
			require.ErrorContains(t, err, "test file is "+says)
			require.NotContains(t, err.Error(), "\n")
		}
	}
	f := decodertest.Header(t, map[string]any{"general.architecture": "deepseek2"})
	require.ErrorContains(t, arch.Check(f), "is a vocabulary without a model")
}
