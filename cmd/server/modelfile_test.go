package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/doctor"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
)

// modelCommands are the commands that open a model's file, with what they need beside
// --model F.
var modelCommands = map[string]string{
	"serve": "--listen 127.0.0.1:0", "bench": "", "tokenize": "", "logits": "--tokens {ids} --out {out}", "plan": "--host 64GiB",
	"verify": "--coordinator 127.0.0.1:1", "share": "--rank 0 --world-size 2 --coordinator 127.0.0.1:0", "doctor": "--quick",
}

// notRun writes files that are no damaged ones, and that this program does not run: their
// paths by a part of what must be said about them.
func notRun(t *testing.T) map[string]string {
	dir := t.TempDir()
	whole := testenv.ReadFile(t, tinyModel(t, nil))
	paths := map[string]string{}
	write := func(says string, data []byte) {
		path := testenv.WriteFile(t, filepath.Join(dir, strings.ReplaceAll(says, " ", "-")+".gguf"), data)
		paths[says] = path
	}
	// The names have as many characters as the true ones.
	renamed := func(from, to string) []byte {
		require.Len(t, to, len(from))
		return bytes.ReplaceAll(whole, []byte(from), []byte(to))
	}
	write("is a Llama model", renamed("deepseek4", "llama-xyz"))
	write("is a Qwen model", renamed("deepseek4", "qwen3next"))
	write("is a model that Ringmaster does not run", renamed("deepseek4", "somearch4"))
	write("is not a model: it does not name an architecture", renamed("general.architecture", "general.architectrue"))
	write("only the block for multi-token prediction (MTP)", renamed("blk.", "mtp."))
	write(`tokenizer.ggml.pre is "joyai-xyz"`, renamed("joyai-llm", "joyai-xyz"))
	write(`tensor "blk.0.attn_norm.weight" is missing`, renamed("blk.0.attn_norm", "blk.0.attn_nrom"))
	write("types that this program cannot compute with: IQ4_KS (ik_llama.cpp; 1 tensor", retyped(t, whole, "blk.0.attn_norm.weight", 144))
	return paths
}

// retyped is a file in which a tensor has another type.
func retyped(t *testing.T, file []byte, tensor string, kind uint32) []byte {
	out := bytes.Clone(file)
	at := bytes.Index(out, []byte(tensor))
	require.Positive(t, at)
	at += len(tensor)
	dims := int(binary.LittleEndian.Uint32(out[at:]))
	binary.LittleEndian.PutUint32(out[at+4+8*dims:], kind)
	return out
}

// TestFilesThatDoNotRun: every command that opens a model refuses a file that this program
// does not run, with exit code 2 and a line that says what it is; doctor calls it an error,
// with its own exit code, and does not advise to fetch it again.
func TestFilesThatDoNotRun(t *testing.T) {
	files := notRun(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ids"), []byte("1 2"), 0o600))
	names := strings.NewReplacer("{ids}", filepath.Join(dir, "ids"), "{out}", filepath.Join(dir, "out"))
	for says, path := range files {
		for command, args := range modelCommands {
			vocabulary, tensors := strings.HasPrefix(says, "tokenizer."), strings.HasPrefix(says, "tensor ")
			if vocabulary && slices.Contains([]string{"logits", "bench", "verify", "share"}, command) || tensors && slices.Contains([]string{"tokenize", "share"}, command) {
				continue // what it uses of the file is sound
			}
			t.Run(command+" "+says, func(t *testing.T) {
				model := []string{"--model", path}
				if command == "share" {
					model = []string{path}
				}
				all := append([]string{command, "--log", "error"}, append(model, strings.Fields(names.Replace(args))...)...)
				if command == "doctor" {
					all = append(all, "--json")
				}
				out, _, err := logged(t, "", all...)
				if command != "doctor" {
					require.ErrorContains(t, err, says)
					require.Equal(t, 2, exitCode(err))
					if !strings.Contains(says, "missing") {
						require.NotContains(t, err.Error(), "\n")
					}
					return
				}
				require.Equal(t, 4, exitCode(err))
				report := testenv.FromJSON[doctor.Report](t, out)
				require.Contains(t, report.Hosts[0].Model.Error, says)
				for _, f := range report.Findings {
					if f.Check == "model" {
						require.Equal(t, doctor.Error, f.Severity)
						require.NotContains(t, f.Cure, "fetch it again")
					}
				}
			})
		}
	}
}

// TestModelFileCures: an error of opening a model's file says what helps.
func TestModelFileCures(t *testing.T) {
	dir := filepath.Dir(tinyModel(t, func(c *synthetic.Config) { c.Parts = 3 }))
	first := filepath.Join(dir, "m-00001-of-00003.gguf")
	require.NoError(t, os.Remove(filepath.Join(dir, "m-00002-of-00003.gguf")))
	for path, says := range map[string][]string{
		"~/m.gguf":                      {"the shell does not replace ~", "$HOME"},
		filepath.Join(dir, "none.gguf"): {"give the GGUF file of a model"},
		first:                           {"m-00002-of-00003.gguf is missing: part 2 of 3", "pull fetches the parts that are missing"},
		dir:                             {"is a directory"},
	} {
		_, err := command(t, "plan", "--host", "8GiB", "--model", path)
		requireRefused(t, err, path, says...)
	}
}

// TestEmptyPaths: a path that is given and empty, as by a variable of a script that is not
// set, is refused by every command; without --model the built-in model would answer.
func TestEmptyPaths(t *testing.T) {
	for command := range modelCommands {
		if command == "share" {
			continue // takes the file as its argument
		}
		args := []string{command, "--model", ""}
		if command == "logits" { // its other flags are required
			args = append(args, "--tokens", "x", "--out", "y")
		}
		_, _, err := logged(t, "", args...)
		requireRefused(t, err, command, "--model (or RINGMASTER_MODEL) is empty")
	}
	t.Setenv("RINGMASTER_MODEL", " ")
	_, err := command(t, "tokenize")
	require.ErrorContains(t, err, "--model (or RINGMASTER_MODEL) is empty")
}

// TestUnknownVariables: a variable that looks like a flag and is none is a warning with
// the nearest name and without the value; what others set is not.
func TestUnknownVariables(t *testing.T) {
	require.Empty(t, tree().Unknown([]string{"RINGMASTER_MODEL=x", "RINGMASTER_API_KEY=k", "RINGMASTER_CONFIG=none", "RINGMASTER_LOG=info",
		"RINGMASTER_URL=u", "RINGMASTER_VERBS_LIBRARY=l", "RINGMASTER_FULL=1", "RINGMASTER_MKMODEL_SEED=9", "HOME=/", "RINGMASTERS=1",
		"RINGMASTER_SERVICE_HOST=10.0.0.1", "RINGMASTER_SERVICE_PORT=80", "RINGMASTER_SERVICE_PORT_HTTP=80", "RINGMASTER_PORT=tcp://10.0.0.1:80",
		"RINGMASTER_GROUP_0_PORT_8080_TCP=tcp://10.0.0.1:8080", "RINGMASTER_PORT_8080_TCP_ADDR=10.0.0.1"}))
	got := tree().Unknown([]string{"RINGMASTER_MODLE=secret", "RINGMASTER_PORT=8080", "RINGMASTER_APIKEY=secret", "RINGMASTER_=x", "RINGMASTER_QQQQQQQQQQQQQ=1"})
	require.Len(t, got, 5)
	all := strings.Join(got, "\n")
	require.Contains(t, all, `"RINGMASTER_MODLE" is no setting and is ignored; did you mean RINGMASTER_MODEL?`)
	require.Contains(t, all, `"RINGMASTER_APIKEY" is no setting and is ignored; did you mean RINGMASTER_API_KEY?`)
	require.Contains(t, all, `"RINGMASTER_PORT" is no setting`)
	require.Equal(t, []string{ // names of variables are case-sensitive
		`environment variable "RINGMASTER_listen" is no setting and is ignored; did you mean RINGMASTER_LISTEN?`,
		`environment variable "ringmaster_model" is no setting and is ignored; did you mean RINGMASTER_MODEL?`,
	}, tree().Unknown([]string{"RINGMASTER_listen=x", "ringmaster_model=x"}))
	require.NotContains(t, all, "secret")
	require.NotContains(t, all, "8080")
}
