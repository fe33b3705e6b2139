package drafts_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/tokenizer"
)

// answering is an answer that is measured.
type answering struct {
	prompt, answer []int32
	file           string // that the prompt shows, if it does
}

// kinds are the answers that are measured, other ones in each round.
var kinds = []struct {
	name    string
	repeats bool // enough to take fewer steps
	draw    func(*testing.T, *rand.Rand, *tokenizer.Tokenizer) answering
}{
	{"a file rewritten", true, func(t *testing.T, r *rand.Rand, v *tokenizer.Tokenizer) answering {
		lines := shown(t, v)
		return fileAnd(t, v, lines, strings.Join(edited(r, lines), ""))
	}},
	{"a file rewritten in a JSON string", true, func(t *testing.T, r *rand.Rand, v *tokenizer.Tokenizer) answering {
		lines := shown(t, v)
		return fileAnd(t, v, lines, call(t, map[string]string{"path": file, "content": strings.Join(edited(r, lines), "")}))
	}},
	{"edits in calls of a tool", true, func(t *testing.T, r *rand.Rand, v *tokenizer.Tokenizer) answering {
		lines := shown(t, v)
		var calls strings.Builder
		for calls.Len() < 16**tokens {
			from := r.IntN(len(lines) - 4)
			before := lines[from : from+2+r.IntN(3)]
			after := slices.Clone(before)
			after[len(after)/2] = lines[r.IntN(len(lines))]
			calls.WriteString(call(t, map[string]string{"path": file, "old": strings.Join(before, ""), "new": strings.Join(after, "")}))
		}
		return fileAnd(t, v, lines, calls.String())
	}},
	{"random text with a change every 25 tokens", true, func(_ *testing.T, r *rand.Rand, v *tokenizer.Tokenizer) answering {
		p := text(r, *prompt, v)
		return answering{prompt: p, answer: rewrite(r, p, v)}
	}},
	{"prose of another document", false, func(t *testing.T, r *rand.Rand, v *tokenizer.Tokenizer) answering {
		return answering{prompt: prose(t, r, "operations.md", *prompt, v), answer: prose(t, r, "distributed-benchmark.md", *tokens, v)}
	}},
	{"nothing repeats", false, func(_ *testing.T, r *rand.Rand, v *tokenizer.Tokenizer) answering {
		return answering{prompt: text(r, *prompt, v), answer: text(r, *tokens, v)}
	}},
}

// file is a file of this repository that prompts show.
const file = "engine/scheduler.go"

// shown returns the first lines of file, about as many as a prompt has tokens for.
func shown(t *testing.T, v *tokenizer.Tokenizer) []string {
	b, err := os.ReadFile("../../" + file)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(b), "\n")
	for n, left := 0, *prompt; ; n++ {
		require.Less(t, n, len(lines), "-prompt is more than the file has")
		ids, err := v.EncodeContext(t.Context(), lines[n], false)
		require.NoError(t, err)
		if left -= len(ids); left < 0 {
			require.Greater(t, n, 4, "-prompt is too short")
			return lines[:n]
		}
	}
}

// changeEvery is the lines from one change to the next: in 80 edits of files of this
// repository 12 tokens, about a line, changed every 465.
const changeEvery = 40

// edited returns the lines with changes.
func edited(r *rand.Rand, lines []string) []string {
	after := slices.Clone(lines)
	for at := r.IntN(min(changeEvery, len(lines))); at < len(lines); at += changeEvery/2 + r.IntN(changeEvery) {
		after[at] = lines[r.IntN(len(lines))]
	}
	return after
}

// call returns the arguments of a call, as models write them.
func call(t *testing.T, arguments map[string]string) string {
	b, err := json.Marshal(arguments)
	require.NoError(t, err)
	return string(b) + "\n"
}

// fileAnd is a prompt that shows lines of a file, and an answer of as many tokens as are wanted.
func fileAnd(t *testing.T, v *tokenizer.Tokenizer, lines []string, said string) answering {
	shown := strings.Join(lines, "")
	p, err := v.EncodeContext(t.Context(), shown, false)
	require.NoError(t, err)
	a, err := v.EncodeContext(t.Context(), said, false)
	require.NoError(t, err)
	for len(a) < *tokens {
		a = append(a, a...)
	}
	return answering{prompt: p, answer: a[:*tokens], file: shown}
}
