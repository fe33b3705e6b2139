//go:build cgo

package deepseek4_test

import (
	"testing"

	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/synthetic"
)

func TestWorkingBuffers(t *testing.T) {
	tiny := decodertest.Preset(t, "tiny")
	heads := tiny
	heads.Heads, heads.OGroups, heads.IndexHeads, heads.Window, heads.TopK = 16, 4, 16, 100, 32
	architecture.WorkingBuffers(t, map[string]synthetic.Config{"tiny": tiny, "heads": heads})
}
