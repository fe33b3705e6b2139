//go:build cgo

package deepseek2_test

import (
	"testing"

	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/synthetic"
)

func TestWorkingBuffers(t *testing.T) {
	direct := decodertest.Preset(t, "ds2lite-tiny")
	direct.Layers, direct.Latent.DenseFF = 2, 1024
	indexed := smallSparse(t)
	indexed.Layers, indexed.Latent.DenseFF = 2, 512
	architecture.WorkingBuffers(t, map[string]synthetic.Config{
		"glm-tiny": decodertest.Preset(t, "glm-tiny"), "direct": direct, "sparse": indexed})
}
