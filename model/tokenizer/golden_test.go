package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf/gguftest"
)

var deepseekV3 = sync.OnceValues(func() (*Tokenizer, error) {
	f, err := gguftest.Unzipped("testdata/deepseek-v3-vocab.gguf.gz")
	if err != nil {
		return nil, err
	}
	return FromGGUF(f)
})

// golden returns the true DeepSeek V3 vocabulary.
func golden(t testing.TB) *Tokenizer {
	tok, err := deepseekV3()
	require.NoError(t, err)
	return tok
}

// sample is a text and the ids that the true tokenizer produces for it.
type sample struct {
	Text string  `json:"text"`
	IDs  []int32 `json:"ids"`
}

func samples(t testing.TB) []sample {
	f, err := os.Open("testdata/tokenizer-deepseek-v3.jsonl")
	require.NoError(t, err)
	defer f.Close()
	var all []sample
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var s sample
		require.NoError(t, json.Unmarshal(lines.Bytes(), &s))
		all = append(all, s)
	}
	require.NoError(t, lines.Err())
	return all
}

func TestEncodeEqualsTheTrueTokenizer(t *testing.T) {
	tok := golden(t)
	all := samples(t)
	require.Len(t, all, 297)
	for _, s := range all {
		got := tok.Encode(s.Text, true)
		if s.IDs == nil {
			s.IDs = []int32{}
		}
		require.Equal(t, s.IDs, append([]int32{}, got...), "text %q", s.Text)
	}
}
