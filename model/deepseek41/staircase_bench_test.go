package deepseek41_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
)

var benchModel = flag.String("model", "", "model file for benchmarks; default: the one of the tests")

const chunk = 512 // tokens of a step

// open opens the model of benchmarks on two threads.
func open(b *testing.B) decoder.Decoder {
	path := *benchModel
	if path == "" {
		path = decodertest.Write(b, small(b))
	}
	f, err := gguf.Open(path)
	require.NoError(b, err)
	b.Cleanup(func() { f.Close() })
	backend, err := cpu.New(2)
	require.NoError(b, err)
	b.Cleanup(func() { backend.Close() })
	m, err := arch.Open(f, backend, decoder.OpenOptions{MaxTokens: chunk, Context: 16384})
	require.NoError(b, err)
	b.Cleanup(func() { m.Close() })
	return m
}

// prefill runs the tokens from a position on, in chunks, with the logits of the last.
func prefill(b *testing.B, m model.Model, seq model.SeqID, at int, ids []int32, until int) {
	for at < len(ids) {
		n := min(chunk, len(ids)-at)
		e := model.Entry{Seq: seq, Pos: at, Tokens: ids[at : at+n], Until: until}
		if at += n; at == len(ids) {
			e.Want = model.WantLast
		}
		s := model.Step{Entries: []model.Entry{e}}
		_, err := m.Forward(b.Context(), s)
		require.NoError(b, err)
		m.Commit(s)
	}
}

// BenchmarkReplay measures prompts of 64 tokens that follow the first 8,192 of a conversation
// without a checkpoint, by a replay and by running all tokens with an Until, in turns:
//
//	go test ./model/deepseek41 -run - -bench Replay -benchtime 1x -args -model small-v41.gguf
func BenchmarkReplay(b *testing.B) {
	const length, more = 8192, 64
	m := open(b)
	ids := decodertest.RandomIDs(rand.New(rand.NewPCG(1, 2)), m.Info().Vocab, length+more)
	prefill(b, m, 1, 0, ids[:length], length)
	prefill(b, m, 1, length, slices.Concat(ids[:length], ids[:2*m.Info().Rewind]), 0) // nothing near is left
	var whole, replay time.Duration
	seq := model.SeqID(1)
	for b.Loop() {
		seq += 2
		began := time.Now()
		s := model.Step{Forks: []model.Fork{{Seq: seq, From: 1, Length: length, Replay: true}}}
		_, err := m.Forward(b.Context(), s)
		require.NoError(b, err)
		m.Commit(s)
		prefill(b, m, seq, m.Len(seq), ids, len(ids))
		replay += time.Since(began)
		began = time.Now()
		prefill(b, m, seq+1, 0, ids, len(ids))
		whole += time.Since(began)
		m.Commit(model.Step{Drop: []model.SeqID{seq, seq + 1}})
	}
	b.ReportMetric(replay.Seconds()/float64(b.N), "replay-s")
	b.ReportMetric(whole.Seconds()/float64(b.N), "staircase-s")
	b.ReportMetric(replay.Seconds()/whole.Seconds()*length, "tokens-of-work")
}

// BenchmarkStaircase measures prompts with and without an Until, in turns, in chunks of 512:
//
//	go test ./model/deepseek41 -run - -bench Staircase -args -model small-v41.gguf
func BenchmarkStaircase(b *testing.B) {
	m := open(b)
	seq := model.SeqID(0)
	for _, length := range []int{4096, 16384} {
		ids := decodertest.RandomIDs(rand.New(rand.NewPCG(1, 2)), m.Info().Vocab, length)
		prompt := func(until int) time.Duration {
			seq++
			began := time.Now()
			prefill(b, m, seq, 0, ids, until)
			took := time.Since(began)
			m.Commit(model.Step{Drop: []model.SeqID{seq}})
			return took
		}
		b.Run(fmt.Sprint(length, " tokens"), func(b *testing.B) {
			var whole, stairs time.Duration
			for b.Loop() {
				whole += prompt(0)
				stairs += prompt(length)
			}
			b.ReportMetric(float64(length*b.N)/whole.Seconds(), "whole-tokens/s")
			b.ReportMetric(float64(length*b.N)/stairs.Seconds(), "staircase-tokens/s")
			b.ReportMetric(whole.Seconds()/stairs.Seconds(), "times")
		})
	}
}
