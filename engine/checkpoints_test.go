package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWantedCheckpoints: the first branch, then ever denser ones up to the end of the
// prompt, or the last branch close to it; of earlier lengths only those that the sequence
// has.
func TestWantedCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		prompt   int
		branches []int
		held     []int
		lowest   int
		anywhere bool
		want     []int
	}{
		"a prompt without branches":              {prompt: 1000, want: []int{999}},
		"a short prompt":                         {prompt: 20, branches: []int{10}},
		"a long prompt without branches":         {prompt: 20000, want: []int{4096, 8192, 16384, 19999}},
		"a system prompt and a question":         {prompt: 2800, branches: []int{2746, 2797}, want: []int{2746, 2797}},
		"a branch far before the end":            {prompt: 2800, branches: []int{100, 2000}, want: []int{100, 2000, 2799}},
		"a long system prompt":                   {prompt: 10100, branches: []int{10000, 10097}, want: []int{4096, 8192, 10000, 10097}},
		"close branches":                         {prompt: 1000, branches: []int{900, 910, 920, 930, 940, 950, 960, 970, 980, 990, 997}, want: []int{900, 960, 997}},
		"every turn of a conversation":           {prompt: 1400, branches: []int{200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200, 1300, 1397}, want: []int{200, 500, 1100, 1300, 1397}},
		"what the sequence cannot take any more": {prompt: 1400, branches: []int{200, 300, 1300, 1397}, held: []int{200}, lowest: 1290, want: []int{200, 1300, 1397}},
		"forks at any length":                    {prompt: 1400, branches: []int{200}, anywhere: true},
	} {
		s := &scheduler{limits: limits{leastShared: leastShared, rewind: 64, anywhere: c.anywhere}}
		got := s.wanted(&task{prompt: make([]int32, c.prompt), branches: c.branches}, c.held, c.lowest)
		require.Equal(t, c.want, got, name)
	}
}
