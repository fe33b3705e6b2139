//go:build cgo

package deepseek2_test

import (
	"testing"

	"ringmaster/model/synthetic"
)

func TestWorkingBuffers(t *testing.T) {
	direct := preset(t, "ds2lite-tiny")
	direct.Layers, direct.Latent.DenseFF = 2, 1024
	architecture.WorkingBuffers(t, map[string]synthetic.Config{
		"glm-tiny": preset(t, "glm-tiny"), "direct": direct})
}
