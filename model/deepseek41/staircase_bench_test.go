package deepseek41_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
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

// BenchmarkStaircase measures prompts with and without an Until, in turns, in chunks of 512:
//
//	go test ./model/deepseek41 -run - -bench Staircase -args -model small-v41.gguf
func BenchmarkStaircase(b *testing.B) {
	path := *benchModel
	if path == "" {
		path = decodertest.Write(b, small(b))
	}
	f, err := gguf.Open(path)
	require.NoError(b, err)
	defer f.Close()
	backend, err := cpu.New(2)
	require.NoError(b, err)
	defer backend.Close()
	const chunk = 512
	m, err := arch.Open(f, backend, decoder.OpenOptions{MaxTokens: chunk, Context: 16384})
	require.NoError(b, err)
	defer m.Close()
	seq := model.SeqID(0)
	for _, length := range []int{4096, 16384} {
		ids := decodertest.RandomIDs(rand.New(rand.NewPCG(1, 2)), m.Info().Vocab, length)
		prompt := func(until int) time.Duration {
			seq++
			began := time.Now()
			for at := 0; at < length; at += chunk {
				e := model.Entry{Seq: seq, Pos: at, Tokens: ids[at : at+chunk], Until: until}
				if at+chunk == length {
					e.Want = model.WantLast
				}
				s := model.Step{Entries: []model.Entry{e}}
				_, err := m.Forward(b.Context(), s)
				require.NoError(b, err)
				m.Commit(s)
			}
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
