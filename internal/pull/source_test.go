package pull

import (
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	s, err := parse("hf:unsloth/DeepSeek-V3.1-GGUF:UD-Q4_K_XL")
	require.NoError(t, err)
	require.Equal(t, source{repo: "unsloth/DeepSeek-V3.1-GGUF", revision: "main", quant: "UD-Q4_K_XL"}, s)
	s, err = parse("hf:a/b@refs/pr/1")
	require.NoError(t, err)
	require.Equal(t, source{repo: "a/b", revision: "refs/pr/1"}, s)
	s, err = parse("https://huggingface.co/a/b/blob/main/m-00002-of-00003.gguf")
	require.NoError(t, err)
	var urls []string
	for _, f := range s.parts() {
		urls = append(urls, f.url)
		require.Equal(t, path.Base(f.url), f.name)
	}
	const at = "https://huggingface.co/a/b/resolve/main/m-0000"
	require.Equal(t, []string{at + "1-of-00003.gguf", at + "2-of-00003.gguf", at + "3-of-00003.gguf"}, urls)
	for ref, want := range map[string]string{
		"":                                    "want hf:OWNER/REPO",
		"model.gguf":                          "want hf:OWNER/REPO",
		"hf:":                                 "names no repository",
		"hf:repo":                             "names no repository",
		"hf:a/b/c":                            "names no repository",
		"hf:../..":                            "names no repository",
		"hf:a/b:":                             "ends with a colon",
		"hf:a/b@:Q4":                          "is not a branch",
		"hf:a/b@x y":                          "is not a branch",
		"ftp://host/m.gguf":                   "want hf:OWNER/REPO",
		"http://example.org/m.gguf":           "use https",
		"https://example.org/":                "not the name of a .gguf file",
		"https://example.org/m.bin":           "not the name of a .gguf file",
		"https://example.org/.gguf":           "not the name of a .gguf file",
		"https://example.org/.x.gguf":         "not a name for a file",
		"https://example.org/a%2F..%5Cm.gguf": "not a name for a file",
		"https://h/" + strings.Repeat("x", 300) + ".gguf": "not a name for a file",
	} {
		_, err := parse(ref)
		require.ErrorIs(t, err, ErrInput, ref)
		require.ErrorContains(t, err, want, ref)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"33 connections":             {Connections: 33},
		"-1 connections":             {Connections: -1},
		"HF_ENDPOINT is \"hf\"":      {Endpoint: "hf"},
		"HF_TOKEN would be readable": {Endpoint: "http://mirror.example", Token: "x"},
		"HF_TOKEN has characters":    {Token: "x\n"},
	} {
		_, err := newPuller(o)
		require.ErrorIs(t, err, ErrInput)
		require.ErrorContains(t, err, want)
	}
	p, err := newPuller(Options{Endpoint: "http://mirror.example/"})
	require.NoError(t, err)
	require.Equal(t, "http://mirror.example", p.Endpoint)
}

func TestChoice(t *testing.T) {
	h := newHub(t, map[string]int{
		"M-Q4_K.gguf": 100, "M-Q4_K_M.gguf": 110, "M-UD-Q4_K_M.gguf": 120, "BF16/M-BF16-00001-of-00002.gguf": 130,
		"BF16/M-BF16-00002-of-00002.gguf": 140, "Q2_K/M-00001-of-00003.gguf": 1, "Q2_K/M-00003-of-00003.gguf": 2,
		"imatrix.gguf": 5, "mmproj-F16.gguf": 6, "x.txt": 7,
	})
	for quant, want := range map[string]string{
		"Q4_K":                            "M-Q4_K.gguf",
		"q4_k":                            "M-Q4_K.gguf",
		"UD-Q4_K_M":                       "M-UD-Q4_K_M.gguf",
		"M-Q4_K_M":                        "M-Q4_K_M.gguf",
		"M-Q4_K_M.gguf":                   "M-Q4_K_M.gguf",
		"BF16":                            "M-BF16-00001-of-00002.gguf M-BF16-00002-of-00002.gguf",
		"BF16/M-BF16-00002-of-00002.gguf": "M-BF16-00001-of-00002.gguf M-BF16-00002-of-00002.gguf",
	} {
		files, err := h.quick(t.TempDir()).choose(t.Context(), source{repo: "owner/repo", revision: "main", quant: quant})
		require.NoError(t, err, quant)
		var names []string
		for _, f := range files {
			names = append(names, f.name)
			require.Len(t, f.sha256, 64)
		}
		require.Equal(t, want, strings.Join(names, " "), quant)
	}
	for quant, want := range map[string]string{
		"":       "choose one of Q2_K/M (3 B), M-Q4_K (100 B)",
		"Q4_K_M": `"Q4_K_M" names several, choose one of M-Q4_K_M (110 B), M-UD-Q4_K_M (120 B)`,
		"Q9":     `nothing is named "Q9" among`,
		"Q2_K":   "has 2 of its 3 parts, part 2 is missing",
	} {
		_, err := h.quick(t.TempDir()).choose(t.Context(), source{repo: "owner/repo", revision: "main", quant: quant})
		require.ErrorIs(t, err, ErrInput, quant)
		require.ErrorContains(t, err, want)
	}
	h.files = map[string][]byte{"a.safetensors": {1}}
	_, err := h.quick(t.TempDir()).choose(t.Context(), source{repo: "owner/repo", revision: "main"})
	require.ErrorContains(t, err, "has no GGUF file")
	_, err = h.quick(t.TempDir()).choose(t.Context(), source{repo: "owner/none", revision: "main"})
	require.ErrorContains(t, err, "check the name")
	p := h.quick(t.TempDir())
	p.Endpoint = h.store.URL // not a hub
	_, err = p.choose(t.Context(), source{repo: "owner/repo", revision: "main"})
	require.Error(t, err)
}

// FuzzListing: no listing of a hub makes a choice panic, or gives a name that leaves the
// directory.
func FuzzListing(f *testing.F) {
	f.Add(`[{"type":"file","path":"Q4/m-00001-of-00002.gguf","size":3,"lfs":{"oid":"x","size":3}}]`, "Q4")
	f.Add(`[{"type":"file","path":"../m.gguf","size":-3},{"type":"file","path":"a/.gguf"}]`, "")
	f.Fuzz(func(t *testing.T, listing, quant string) {
		var entries []entry
		if json.Unmarshal([]byte(listing), &entries) != nil {
			return
		}
		for _, s := range matching(group(entries), quant) {
			describe([]*set{s})
			for _, e := range s.parts {
				require.NoError(t, checkName(path.Base(e.Path)))
			}
		}
	})
}

// FuzzParse: a reference is refused with ErrInput, or names files with plain names.
func FuzzParse(f *testing.F) {
	f.Add("hf:a/b@main:Q4_K_M")
	f.Add("https://host/a/m-00001-of-00009.gguf?x=1#y")
	f.Fuzz(func(t *testing.T, ref string) {
		s, err := parse(ref)
		if err != nil {
			require.ErrorIs(t, err, ErrInput)
			return
		}
		for _, p := range s.parts() {
			require.NoError(t, checkName(p.name))
		}
	})
}
