package tokenizer

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
)

func TestTrueVocabulary(t *testing.T) {
	tok := golden(t)
	require.Equal(t, 128815, tok.Size())
	requireMarkers(t, tok, 0, 1, 2)
	require.False(t, tok.AddBOS())
	var ends []string
	for id := range int32(tok.Size()) {
		if tok.IsEnd(id) {
			ends = append(ends, tok.Text(id))
		}
	}
	require.Equal(t, []string{"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"}, ends)
	_, ok := tok.ID("no such token")
	require.False(t, ok)
}

// requireMarkers checks the ids of BOS, EOS and padding.
func requireMarkers(t *testing.T, tok *Tokenizer, want ...int32) {
	for i, marker := range []func() (int32, bool){tok.BOS, tok.EOS, tok.Pad} {
		id, ok := marker()
		require.True(t, ok)
		require.Equal(t, want[i], id)
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	id := func(n int32) *int32 { return &n }
	for _, c := range []struct {
		name   string
		change func(*Vocab)
		want   []string
	}{
		{"model", func(v *Vocab) { v.Model = "llama" }, []string{"tokenizer.ggml.model", `"llama"`, `"gpt2"`}},
		{"pre", func(v *Vocab) { v.Pre = "qwen2" }, []string{"tokenizer.ggml.pre", `"qwen2"`, strings.Join(Pretokenizers(), ", ")}},
		{"no tokens", func(v *Vocab) { v.Tokens = nil }, []string{"tokenizer.ggml.tokens", "missing"}},
		{"types", func(v *Vocab) { v.Types = v.Types[1:] }, []string{"tokenizer.ggml.token_type", "256", "257"}},
		{"type", func(v *Vocab) { v.Types[3] = 9 }, []string{"tokenizer.ggml.token_type of token 3", "9"}},
		{"no merges", func(v *Vocab) { v.Merges = nil }, []string{"tokenizer.ggml.merges", "missing"}},
		{"one part", func(v *Vocab) { v.Merges = []string{"a b", "ab"} }, []string{"tokenizer.ggml.merges[1]", `"ab"`, "two parts"}},
		{"three parts", func(v *Vocab) { v.Merges = []string{"a b c"} }, []string{"tokenizer.ggml.merges[0]", "two parts"}},
		{"empty part", func(v *Vocab) { v.Merges = []string{" b"} }, []string{"tokenizer.ggml.merges[0]", "two parts"}},
		{"part", func(v *Vocab) { v.Merges = []string{"a b", "xyz b"} }, []string{"tokenizer.ggml.merges[1]", `"xyz" is not in`}},
		{"result", func(v *Vocab) { v.Merges = []string{"b a"} }, []string{"tokenizer.ggml.merges[0]", `"ba" is not in`}},
		{"byte", func(v *Vocab) { v.Tokens[' '] = "lost" }, []string{"tokenizer.ggml.tokens", "0x20", `'Ġ'`}},
		{"bos", func(v *Vocab) { v.BOS = id(257) }, []string{"tokenizer.ggml.bos_token_id", "257"}},
		{"eos", func(v *Vocab) { v.EOS = id(-1) }, []string{"tokenizer.ggml.eos_token_id", "-1"}},
		{"pad", func(v *Vocab) { v.Pad = id(1 << 30) }, []string{"tokenizer.ggml.padding_token_id"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := byteVocab()
			_, err := New(v)
			require.NoError(t, err)
			c.change(&v)
			_, err = New(v)
			require.ErrorIs(t, err, ErrVocabulary)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestNewOptionalParts(t *testing.T) {
	for _, pre := range Pretokenizers() {
		v := byteVocab()
		v.Pre, v.Types, v.AddBOS = pre, nil, true
		tok, err := New(v)
		require.NoError(t, err)
		require.True(t, tok.AddBOS())
		require.Equal(t, Normal, tok.Type(0))
		for _, marker := range []func() (int32, bool){tok.BOS, tok.EOS, tok.Pad} {
			_, ok := marker()
			require.False(t, ok)
		}
		require.Equal(t, []int32{256, 'c'}, tok.Encode("abc", true))
	}
}

// The tokens that end a turn and a message according to the file end an answer, whatever
// their names.
func TestEndsThatTheFileNames(t *testing.T) {
	f := vocabFile(t, map[string]any{"tokenizer.ggml.eot_token_id": uint32(97), "tokenizer.ggml.eom_token_id": uint32(98)})
	tok, err := FromGGUF(f)
	require.NoError(t, err)
	require.True(t, tok.IsEnd(97))
	require.True(t, tok.IsEnd(98))
	require.False(t, tok.IsEnd(99))
	_, err = FromGGUF(vocabFile(t, map[string]any{"tokenizer.ggml.eot_token_id": uint32(1 << 20)}))
	require.ErrorContains(t, err, "tokenizer.ggml.eot_token_id is 1048576, but there are")
}

// vocabFile returns a model file with the keys of byteVocab after change has edited them;
// a nil value removes a key.
func vocabFile(t *testing.T, change map[string]any) *gguf.File {
	v := byteVocab()
	types := make([]int32, len(v.Types))
	for i, n := range v.Types {
		types[i] = int32(n)
	}
	keys := map[string]any{
		"general.architecture":            "deepseek4",
		"tokenizer.ggml.model":            v.Model,
		"tokenizer.ggml.pre":              v.Pre,
		"tokenizer.ggml.tokens":           v.Tokens,
		"tokenizer.ggml.token_type":       types,
		"tokenizer.ggml.merges":           v.Merges,
		"tokenizer.ggml.bos_token_id":     uint32(1),
		"tokenizer.ggml.eos_token_id":     uint32(2),
		"tokenizer.ggml.padding_token_id": uint32(3),
		"tokenizer.ggml.add_bos_token":    true,
	}
	maps.Copy(keys, change)
	w := gguf.NewWriter()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] != nil {
			require.NoError(t, w.Put(key, keys[key]))
		}
	}
	return gguftest.Open(t, "model.gguf", w)
}

func TestFromGGUF(t *testing.T) {
	tok, err := FromGGUF(vocabFile(t, nil))
	require.NoError(t, err)
	require.Equal(t, []int32{256, 'c'}, tok.Encode("abc", true))
	requireMarkers(t, tok, 1, 2, 3)
	require.True(t, tok.AddBOS())

	tok, err = FromGGUF(vocabFile(t, map[string]any{
		"tokenizer.ggml.token_type": nil, "tokenizer.ggml.bos_token_id": nil,
		"tokenizer.ggml.eos_token_id": nil, "tokenizer.ggml.padding_token_id": nil, "tokenizer.ggml.add_bos_token": nil,
	}))
	require.NoError(t, err)
	_, ok := tok.EOS()
	require.False(t, ok)
	require.False(t, tok.AddBOS())
	require.Equal(t, Normal, tok.Type(0))
}

func TestFromGGUFNamesFileAndKey(t *testing.T) {
	for key, bad := range map[string][]any{
		"tokenizer.ggml.model":            {nil, uint32(1), "llama"},
		"tokenizer.ggml.pre":              {nil, "default"},
		"tokenizer.ggml.tokens":           {nil, "a", []int32{1}},
		"tokenizer.ggml.merges":           {nil, []int32{1}, []string{"a c"}},
		"tokenizer.ggml.token_type":       {"a", []string{"1"}, []int32{1}},
		"tokenizer.ggml.bos_token_id":     {"a", uint32(257), ^uint32(0)},
		"tokenizer.ggml.eos_token_id":     {true},
		"tokenizer.ggml.padding_token_id": {[]int32{1}},
		"tokenizer.ggml.add_bos_token":    {uint32(1)},
	} {
		for _, value := range bad {
			_, err := FromGGUF(vocabFile(t, map[string]any{key: value}))
			require.ErrorIs(t, err, ErrVocabulary, "%s = %v", key, value)
			require.ErrorContains(t, err, key)
			require.ErrorContains(t, err, "model.gguf")
		}
	}
}

// Each family has its tokens that end an answer; they count only if they are added.
func TestEndsOfEveryFamily(t *testing.T) {
	for _, text := range endTexts {
		for kind, ends := range map[Type]bool{Control: true, UserDefined: true, Unused: false} {
			v := byteVocab()
			v.Tokens, v.Types = append(v.Tokens, text), append(v.Types, kind)
			tok, err := New(v)
			require.NoError(t, err)
			require.Equal(t, ends, tok.IsEnd(257), "%s of type %d", text, kind)
		}
	}
}
