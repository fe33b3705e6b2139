package tokenizer

import (
	"maps"
	"slices"
	"strings"
)

// splitter splits a text into the words within which tokens are merged: it calls word for
// each in order; concatenated they are s.
type splitter func(s string, word func(string))

// splitters has the known values of tokenizer.ggml.pre. Names with the same splitter mean
// exactly the same expressions.
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

// splitterOf returns the splitter that a file names.
func splitterOf(pre string) (splitter, error) {
	if s, ok := splitters[pre]; ok {
		return s, nil
	}
	return nil, vocabError("tokenizer.ggml.pre is %q; supported are %s", pre, strings.Join(Pretokenizers(), ", "))
}
