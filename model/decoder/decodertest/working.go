//go:build cgo

package decodertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
)

// WorkingBuffers checks that at every level, with few threads and many, in steps of one
// token and of many, the working buffers of the kernels stay within their bound, and that
// the bound is not far off.
func (a Architecture) WorkingBuffers(t *testing.T, shapes map[string]synthetic.Config) {
	for name, c := range shapes {
		levels := cpu.Levels()
		for i, level := range levels {
			for _, threads := range []int{1, 3} {
				if (i != len(levels)-1 || threads == 1) && !testenv.Rest(t, testenv.Full, fmt.Sprintf("%s, %v, %d threads", name, level, threads)) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %v, %d threads", name, level, threads), func(t *testing.T) {
					const rows, length = 48, 260
					f, o := InMemory(t, c), decoder.OpenOptions{Context: length, MaxTokens: rows}
					b, err := cpu.NewLevel(threads, level)
					require.NoError(t, err)
					m := a.openWith(t, f, b, o)
					plan, err := arch.Plan(f, o, 1)
					require.NoError(t, err)
					plan.Working.Threads = threads
					bound := plan.Working.Bytes()
					random := rand.New(rand.NewPCG(1, 2))
					for at := 0; at < length; {
						n := min(rows, length-at)
						if at >= 2*rows {
							n = min(1+random.IntN(20), length-at)
						}
						step := model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: make([]int32, n), Want: model.WantLast}}}
						_, err := m.Forward(context.Background(), step)
						require.NoError(t, err)
						m.Commit(step)
						at += n
						require.LessOrEqual(t, b.WorkingBytes(), bound, "after %d tokens", at)
					}
					t.Logf("%d of %d bytes", b.WorkingBytes(), bound)
					require.Greater(t, 8*b.WorkingBytes(), bound, "the bound is far off")
				})
			}
		}
	}
}
