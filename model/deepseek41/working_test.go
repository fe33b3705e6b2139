//go:build cgo

package deepseek41_test

import (
	"testing"

	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/synthetic"
)

func TestWorkingBuffers(t *testing.T) {
	tiny := decodertest.Preset(t, "v41-tiny")
	architecture.WorkingBuffers(t, map[string]synthetic.Config{"tiny": tiny})
}
