package tokenizer

import (
	"maps"
	"slices"
	"strings"
)

// splitter splits a text into the words within which tokens are merged: it calls
// word for every one in order; concatenated they are s.
type splitter func(s string, word func(string))

// splitters are the known values of tokenizer.ggml.pre. The names that share a
// splitter stand for exactly the same expressions.
var splitters = map[string]splitter{
	"deepseek-v3":    splitV3,
	"joyai-llm":      splitV3, // V4
	"hunyuan-dense":  splitV3,
	"deepseek-llm":   splitLLM, // LLM, V2, V2.5
	"deepseek-coder": splitCoder,
	"kimi-k2":        splitKimi,
	"glm4":           splitGLM,
	"chatglm-bpe":    splitGLM,
}

// Pretokenizers lists the values of tokenizer.ggml.pre that New accepts, in
// lexical order.
func Pretokenizers() []string { return slices.Sorted(maps.Keys(splitters)) }

// splitterOf finds the splitter that a file names.
func splitterOf(pre string) (splitter, error) {
	if s, ok := splitters[pre]; ok {
		return s, nil
	}
	return nil, vocabError("tokenizer.ggml.pre is %q; supported are %s", pre, strings.Join(Pretokenizers(), ", "))
}
