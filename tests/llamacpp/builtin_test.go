package llamacpp_test

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
)

// The built-in model and the questions about it, in its package.
const (
	builtinModel     = "../../model/builtin/builtin.gguf"
	builtinQuestions = "../../model/builtin/questions.jsonl"
)

// A token of llama.cpp that is not our most likely one counts as a tie within the
// rounding of activations if our logits of the two differ by no more than this, and
// only a few answers may have one.
const (
	tie        = 0.5
	fewestSame = 0.9
)

// TestBuiltinModelGeneratesTheSameTokens checks that llama.cpp loads the built-in
// model and greedily generates the tokens that are most likely by our logits.
func TestBuiltinModelGeneratesTheSameTokens(t *testing.T) {
	install(t)
	binary := testenv.Program(t)
	model, err := filepath.Abs(builtinModel)
	require.NoError(t, err)
	f, err := gguf.Open(model)
	require.NoError(t, err)
	vocab, err := f.RequireUint("deepseek4.vocab_size")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	judge := startJudge(t, model)
	sameVocabulary(t, judge, model)

	const predict, asked = 12, 30
	equal := 0
	for _, question := range append(questions(t, asked-1), "What is the capital of France?") {
		var prompt, theirs struct{ IDs []int }
		judge.ask(t, map[string]any{"op": "tokenize",
			"text": "<｜begin▁of▁sentence｜><｜User｜>" + question + "<｜Assistant｜></think>"}, &prompt)
		judge.ask(t, map[string]any{"ids": prompt.IDs, "predict": predict}, &theirs)
		require.Len(t, theirs.IDs, predict)
		answer := theirs.IDs
		if end := slices.Index(answer, 1); end >= 0 { // anything after the end token is not part of the answer
			answer = answer[:end+1]
		}
		ids := slices.Concat(prompt.IDs, answer[:len(answer)-1])
		rows := ourLogits(t, binary, model, ids, len(ids), int(vocab))
		same := true
		for i, token := range answer {
			row := rows[len(prompt.IDs)-1+i]
			if best := slices.Index(row, slices.Max(row)); best != token {
				same = false
				t.Logf("%s: token %d is %d, ours %d, %.3f apart", question, i, token, best, row[best]-row[token])
				require.LessOrEqual(t, row[best]-row[token], tie, question)
			}
		}
		if same {
			equal++
		}
	}
	t.Logf("%d of %d answers are token for token the same", equal, asked)
	require.GreaterOrEqual(t, float64(equal), fewestSame*asked)
}

// questions selects n evenly spaced questions of the list.
func questions(t *testing.T, n int) []string {
	t.Helper()
	f, err := os.Open(builtinQuestions)
	require.NoError(t, err)
	defer f.Close()
	var all []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		q := testenv.FromJSON[struct{ Question string }](t, lines.Bytes())
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
