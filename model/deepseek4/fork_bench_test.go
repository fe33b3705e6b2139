package deepseek4_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek4"
	"ringmaster/model/synthetic"
)

// BenchmarkFork measures a fork of 16,384 tokens and a checkpoint in two layers of the
// widths of V4 Flash, one of each ratio. Prefill time is that of the sequence's first 512
// tokens for all of them, which is less than it takes, because later ones attend to more.
// Both times grow with the number of layers alike.
func BenchmarkFork(b *testing.B) {
	c, err := synthetic.Preset("flash")
	require.NoError(b, err)
	const length, chunk = 16384, 512
	c.Holes, c.Layers, c.Ratios, c.Experts, c.Vocab, c.HashLayers = false, 2, []int{4, 128}, 8, 512, 0
	f := decodertest.OnDisk(b, c)
	backend, err := cpu.New(2)
	require.NoError(b, err)
	defer backend.Close()
	m, err := deepseek4.Open(f, backend, deepseek4.Options{MaxTokens: chunk, Context: 1 << 17})
	require.NoError(b, err)
	defer m.Close()
	run := func(s model.Step) time.Duration {
		start := time.Now()
		_, err := m.Forward(context.Background(), s)
		require.NoError(b, err)
		m.Commit(s)
		return time.Since(start)
	}
	prompt := model.Step{Entries: []model.Entry{{Seq: 1, Tokens: make([]int32, chunk)}}}
	run(prompt)
	prefill := run(prompt) * length / chunk
	// The state of the other tokens is zeros; it is copied all the same.
	require.NoError(b, m.Rehearse(model.WantLast, length-1))
	run(model.Step{Entries: []model.Entry{{Seq: 1, Pos: length - 1, Tokens: []int32{0}}}})
	var fork, take time.Duration
	for b.Loop() {
		take += run(model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{length}}}})
		fork += run(model.Step{Forks: []model.Fork{{Seq: 2, From: 1, Length: length}}})
		run(model.Step{Drop: []model.SeqID{2}, Checkpoints: []model.Checkpoints{{Seq: 1}}})
	}
	n := float64(b.N)
	b.ReportMetric(fork.Seconds()*1e3/n, "fork-ms")
	b.ReportMetric(take.Seconds()*1e3/n, "checkpoint-ms")
	b.ReportMetric(prefill.Seconds(), "prefill-s")
	b.ReportMetric(100*fork.Seconds()/n/prefill.Seconds(), "%-of-prefill")
	b.ReportMetric(float64(m.StateBytes(1, 0, length))/1e6, "state-MB")
	b.ReportMetric(float64(m.SequenceBytes(length))/1e6, "sequence-MB")
	b.ReportMetric(float64(m.CheckpointBytes())/1e6, "checkpoint-MB")
}
