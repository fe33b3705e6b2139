package llamacpp_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
)

// The built-in model and the questions about it, beside their package.
const (
	builtinModel     = "../../model/builtin/builtin.gguf"
	builtinQuestions = "../../model/builtin/questions.jsonl"
)

// llama.cpp loads the built-in model and, greedily, generates the tokens that
// we find likeliest, token by token.
func TestBuiltinModelGeneratesTheSameTokens(t *testing.T) {
	install(t)
	binary := build(t)
	model, err := filepath.Abs(builtinModel)
	require.NoError(t, err)
	f, err := gguf.Open(model)
	require.NoError(t, err)
	vocab, err := f.RequireUint("deepseek4.vocab_size")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	judge := startJudge(t, model)
	sameVocabulary(t, judge, model)

	const predict = 12
	for _, question := range append(questions(t, 12), "What is the capital of France?") {
		var prompt, theirs struct{ IDs []int }
		judge.ask(t, map[string]any{"op": "tokenize",
			"text": "<｜begin▁of▁sentence｜><｜User｜>" + question + "<｜Assistant｜></think>"}, &prompt)
		judge.ask(t, map[string]any{"ids": prompt.IDs, "predict": predict}, &theirs)
		require.Len(t, theirs.IDs, predict)
		ids := append(prompt.IDs[:len(prompt.IDs):len(prompt.IDs)], theirs.IDs[:predict-1]...)
		rows := ourLogits(t, binary, model, ids, len(ids), int(vocab))
		var ours []int
		for r := len(prompt.IDs) - 1; r < len(ids); r++ {
			next := largest(rows[r*int(vocab) : (r+1)*int(vocab)])
			ours = append(ours, next)
			if next == 1 { // the end: what follows it is nobody's answer
				break
			}
		}
		require.Equal(t, theirs.IDs[:len(ours)], ours, question)
	}
}

// questions spreads n over the list.
func questions(t *testing.T, n int) []string {
	t.Helper()
	f, err := os.Open(builtinQuestions)
	require.NoError(t, err)
	defer f.Close()
	var all []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var q struct{ Question string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &q))
		require.NotEmpty(t, strings.TrimSpace(q.Question))
		all = append(all, q.Question)
	}
	require.NoError(t, lines.Err())
	require.GreaterOrEqual(t, len(all), n)
	picked := make([]string, n)
	for i := range picked {
		picked[i] = all[i*len(all)/n]
	}
	return picked
}
