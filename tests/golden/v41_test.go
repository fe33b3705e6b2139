package golden

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model/deepseek41"
	"ringmaster/tests/exact"
)

// TestLogitsOfV41: the logits of DeepSeek V4.1's architecture agree with a float64 pass that
// was written from the same text and not from our code. No file of real weights and no other
// engine has judged either. These models choose 16 of up to 300 entries in five layers and 3
// of 9 experts in ten: float16 caches turn a choice in one token of ten, first that of token
// 30, and these carry on. TestExactPassOfV41 shows that nothing else differs.
func TestLogitsOfV41(t *testing.T) {
	dir := goldenDir(t)
	ids := readIDs(t, filepath.Join(dir, "ids.txt"))[:300]
	all := testenv.Rest(t, testenv.Full, "two more models of the reference, of ds4's family of files")
	for _, c := range []struct {
		name  string
		first float64 // limit of relrms over the first 30 tokens
	}{{"v41-tiny-f32", 0.0006}, {"v41-tiny", 0.001}, {"v41-tiny-ds4", 0.0006}, {"v41-tiny-ds4-r136", 0.0006}} {
		if !all && c.name != "v41-tiny-f32" && c.name != "v41-tiny" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.name+".gguf")
			runPython(t, filepath.Join(dir, "make_model41.py"), "-o", path, "--preset", c.name)
			reference := c.name
			if c.name == "v41-tiny-ds4" { // the same function
				reference = "v41-tiny-f32"
			}
			want := readLogits(t, filepath.Join(dir, reference+".reference.f32"), len(ids))
			o := cpu.Options{Threads: 2, Level: cpu.Best(), Activations: cpu.Bits15}
			whole := ours(t, path, ids, o, len(ids))
			far, same := exact.Distance(whole, want)
			first, _ := exact.Distance(whole[:30], want[:30])
			t.Logf("relrms %.5f, %.5f over the first 30, %.1f %% same argmax", far, first, 100*same)
			require.LessOrEqual(t, first, c.first)
			require.LessOrEqual(t, far, 0.08)
			require.GreaterOrEqual(t, same, 0.92)
			o.Threads = 1
			for _, chunks := range [][]int{{1}, {64}, {1, 3, 2, 7, 31, 33}} {
				got := ours(t, path, ids, o, chunks...)
				for i := range whole {
					require.Equal(t, whole[i], got[i], "token %d in chunks of %v differs from one pass", i, chunks)
				}
			}
		})
	}
}

// TestFamiliesOfV41: the files of both converters give one configuration.
func TestFamiliesOfV41(t *testing.T) {
	dir := goldenDir(t)
	read := func(name string) deepseek41.Config {
		path := filepath.Join(t.TempDir(), name+".gguf")
		runPython(t, filepath.Join(dir, "make_model41.py"), "-o", path, "--preset", name)
		f, err := gguf.Open(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		c, err := deepseek41.ReadConfig(f)
		require.NoError(t, err)
		c.Name = ""
		return c
	}
	require.Equal(t, read("v41-tiny-f32"), read("v41-tiny-ds4"))
}
