package llamacpp_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
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
	judge := startJudge(t, withoutBlock(t, f))
	require.NoError(t, f.Close())
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

// withoutBlock writes the model of a file without its block for multi-token prediction, which
// llama.cpp v0.5.0 does not load with this architecture, and returns its path.
func withoutBlock(t *testing.T, f *gguf.File) string {
	t.Helper()
	const own = "deepseek4."
	blocks, err := f.RequireUint(own + "nextn_predict_layers")
	require.NoError(t, err)
	all, err := f.RequireUint(own + "block_count")
	require.NoError(t, err)
	layers := int(all - blocks)
	w := gguf.NewWriter()
	for _, key := range f.Keys() {
		var value any
		if s, ok := f.String(key); ok {
			value = s
		} else if b, ok := f.Bool(key); ok {
			value = b
		} else if n, ok := f.Uint(key); ok {
			switch key {
			case own + "block_count":
				n = uint64(layers)
			case own + "nextn_predict_layers":
				n = 0
			}
			value = uint32(n)
		} else if x, ok := f.Float(key); ok {
			value = float32(x)
		} else if s, ok := f.Strings(key); ok {
			value = s
		} else if all, ok := f.Ints(key); ok && strings.HasPrefix(key, own) {
			value = numbers[uint32](all[:layers])
		} else if ok {
			value = numbers[int32](all)
		} else {
			all, err := f.RequireFloats(key)
			require.NoError(t, err)
			value = numbers[float32](all[:layers])
		}
		require.NoError(t, w.Put(key, value), key)
	}
	block := fmt.Sprintf("blk.%d.", layers)
	for _, x := range f.Tensors() {
		if !strings.HasPrefix(x.Name, block) {
			require.NoError(t, w.Add(x.Name, x.Type, x.Shape, func(w io.Writer) error {
				_, err := w.Write(x.Data)
				return err
			}))
		}
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, os.WriteFile(path, gguftest.Bytes(t, w), 0o600))
	return path
}

// numbers converts each of them.
func numbers[T, F int32 | uint32 | float32 | int64 | float64](from []F) (out []T) {
	for _, x := range from {
		out = append(out, T(x))
	}
	return out
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
