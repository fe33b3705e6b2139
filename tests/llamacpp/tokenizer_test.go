package llamacpp_test

import (
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/model/tokenizer"
	"ringmaster/tests/texts"
)

// asIs says whether llama.cpp v0.5.0 and the original tokenizer, which we follow,
// split a text alike; the texts for which they do not are compared in
// model/tokenizer, with the original's expressions.
var asIs = map[string]func(text string) bool{
	"deepseek-v3":    everywhere,
	"joyai-llm":      everywhere,
	"hunyuan-dense":  everywhere,
	"deepseek-coder": narrowSpace,
	"deepseek-llm":   func(text string) bool { return narrowSpace(text) && !numberRun.MatchString(text) },
	"glm4":           noLongS,
	"chatglm-bpe":    noLongS,
	"kimi-k2": func(text string) bool {
		return noLongS(text) && !caseOrMark.MatchString(text) && !hanSigns.MatchString(text)
	},
}

var (
	// numberRun: llama.cpp keeps numbers together where the original splits them one
	// by one.
	numberRun = regexp.MustCompile(`\pN\pN`)
	// hanSigns: of the script Han llama.cpp knows the ideographs, and not radicals,
	// numbers and signs such as 〇.
	hanSigns = regexp.MustCompile(`[\x{2E80}-\x{303F}]`)
	// caseOrMark: llama.cpp ends a run of letters at a mark, and not between lower
	// and upper case.
	caseOrMark = regexp.MustCompile(`\pM|[\p{Ll}\p{Lm}\p{Lo}][\p{Lu}\p{Lt}]`)
)

// narrowSpace: llama.cpp reads white space beyond ASCII as U+000B, so that none of it
// is in the expressions' sets from U+0800 to U+9FA5.
func narrowSpace(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= 0x0800 && unicode.IsSpace(r) })
}

func everywhere(string) bool { return true }

// noLongS: llama.cpp does not take ſ for an s without regard to case.
func noLongS(text string) bool { return !strings.Contains(text, "'ſ") }

// TestTokenizesLikeLlamaCpp compares the ids of thousands of random texts for every
// pre-tokenizer. The vocabulary is trained on such texts without regard to words, so
// that its merges cross every boundary that a pre-tokenizer could leave out.
func TestTokenizesLikeLlamaCpp(t *testing.T) {
	install(t)
	tokens, merges := crossing(rand.New(rand.NewPCG(17, 1)), 1500)
	for _, pre := range tokenizer.Pretokenizers() {
		t.Run(pre, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "vocab.gguf")
			w := gguf.NewWriter()
			for _, kv := range []struct {
				key   string
				value any
			}{
				{"general.architecture", "llama"},
				{"tokenizer.ggml.model", "gpt2"},
				{"tokenizer.ggml.pre", pre},
				{"tokenizer.ggml.tokens", tokens},
				{"tokenizer.ggml.token_type", slices.Repeat([]int32{int32(tokenizer.Normal)}, len(tokens))},
				{"tokenizer.ggml.merges", merges},
				{"tokenizer.ggml.add_bos_token", false},
			} {
				require.NoError(t, w.Put(kv.key, kv.value))
			}
			require.NoError(t, w.WriteFile(path))
			f := gguftest.OpenFile(t, path)
			ours, err := tokenizer.FromGGUF(f)
			require.NoError(t, err)
			judge := startJudge(t, path, "--vocab-only")
			r := rand.New(rand.NewPCG(17, 2))
			compared := 0
			for range 4000 {
				text := texts.Random(r)
				require.NotNil(t, asIs[pre], pre)
				if !asIs[pre](text) {
					continue
				}
				compared++
				var theirs struct{ IDs []int32 }
				judge.ask(t, map[string]any{"op": "tokenize", "text": text}, &theirs)
				got := append([]int32{}, ours.Encode(text, true)...)
				require.Equal(t, words(ours, theirs.IDs), words(ours, got), "%+q", text)
				require.Equal(t, append([]int32{}, theirs.IDs...), got, "%+q", text)
			}
			t.Logf("%d texts compared", compared)
			require.Greater(t, compared, 1000)
		})
	}
}

func words(tok *tokenizer.Tokenizer, ids []int32) (list []string) {
	for _, id := range ids {
		list = append(list, string(tok.Raw(id)))
	}
	return list
}

// crossing makes a vocabulary of the bytes and of about n merges of the most
// frequent neighbours in random texts, wherever they stand.
func crossing(r *rand.Rand, n int) (tokens, merges []string) {
	chars := byteChars()
	var corpus [][]string
	for range 4000 {
		text := texts.Random(r)
		pieces := make([]string, len(text))
		for i := range len(text) {
			pieces[i] = chars[text[i]]
		}
		corpus = append(corpus, pieces)
	}
	tokens = append(tokens, chars[:]...)
	known := map[string]bool{}
	for len(merges) < n {
		count := map[[2]string]int{}
		for _, pieces := range corpus {
			for i := 1; i < len(pieces); i++ {
				count[[2]string{pieces[i-1], pieces[i]}]++
			}
		}
		var pairs [][2]string
		for p := range count {
			pairs = append(pairs, p)
		}
		slices.SortFunc(pairs, func(a, b [2]string) int {
			if c := count[b] - count[a]; c != 0 {
				return c
			}
			return slices.Compare(a[:], b[:])
		})
		chosen := map[[2]string]bool{} // many at a time, for speed
		for _, p := range pairs[:min(50, len(pairs))] {
			if !known[p[0]+p[1]] {
				known[p[0]+p[1]], chosen[p] = true, true
				tokens, merges = append(tokens, p[0]+p[1]), append(merges, p[0]+" "+p[1])
			}
		}
		for i, pieces := range corpus {
			out := pieces[:0]
			for j := 0; j < len(pieces); j++ {
				if j+1 < len(pieces) && chosen[[2]string{pieces[j], pieces[j+1]}] {
					out = append(out, pieces[j]+pieces[j+1])
					j++
				} else {
					out = append(out, pieces[j])
				}
			}
			corpus[i] = out
		}
	}
	return tokens, merges
}

// byteChars is the character that stands for each byte in a byte-level vocabulary:
// printable ones of Latin-1 for themselves, the others for U+0100 and on.
func byteChars() (chars [256]string) {
	next := rune(0x100)
	for b := range rune(256) {
		r := b
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r, next = next, next+1
		}
		chars[b] = string(r)
	}
	return chars
}
