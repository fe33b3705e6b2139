package gguf

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/ollama/ollama/fs/ggml"
)

// splitName matches the end of the file name of a part of a split model, as
// llama.cpp's gguf-split writes it.
var splitName = regexp.MustCompile(`-(\d{5})-of-(\d{5})\.gguf$`)

// splitCount is the number of parts of the model at path according to its name:
// 1 for a plain file.
func splitCount(path string) (int, error) {
	m := splitName.FindStringSubmatch(path)
	if m == nil {
		return 1, nil
	}
	no, _ := strconv.Atoi(m[1]) // five digits
	n, _ := strconv.Atoi(m[2])
	if n == 0 || no == 0 || no > n {
		return 0, fmt.Errorf("%s: part %d of %d is impossible; expected -00001-of-0000N.gguf", path, no, n)
	}
	if no != 1 {
		return 0, fmt.Errorf("%s: part %d of a split model; open the first part, %s", path, no, splitPath(path, 0, n))
	}
	return n, nil
}

// splitPath is the path of part i (from 0) of n of the model at path.
func splitPath(path string, i, n int) string {
	m := splitName.FindStringIndex(path)
	if m == nil {
		return path
	}
	return path[:m[0]] + fmt.Sprintf("-%05d-of-%05d.gguf", i+1, n)
}

// Parts returns the paths of all files of the model at path, the first part of a split
// one. It goes by the name and opens nothing; the error says what is wrong with it.
func Parts(path string) ([]string, error) {
	n, err := splitCount(path)
	if err != nil {
		return nil, err
	}
	parts := make([]string, n)
	for i := range parts {
		parts[i] = splitPath(path, i, n)
	}
	return parts, nil
}

// MissingPart is the error of a split model that has its first part and lacks another.
type MissingPart struct {
	Path     string
	Part, Of int // from 1
}

func (e *MissingPart) Error() string {
	return fmt.Sprintf("%s is missing: part %d of %d of a split model; all parts must lie in one directory", e.Path, e.Part, e.Of)
}

// Unwrap makes the error one of a file that does not exist.
func (e *MissingPart) Unwrap() error { return fs.ErrNotExist }

// agrees checks that a later part says the same of the model as the first part. What it
// says is not used, but otherwise parts of two models that happen to fit would become
// one.
func (f *File) agrees(kv ggml.KV) error {
	for key, v := range kv {
		old, both := f.kv[key]
		if !both || strings.HasPrefix(key, "split.") || strings.HasPrefix(key, "general.") && key != keyArchitecture || strings.HasPrefix(key, "quantize.") {
			continue
		}
		if hashOf(v) != hashOf(old) {
			return fmt.Errorf("key %q has another value than in the first part: the parts belong to different models", key)
		}
	}
	return nil
}

// hashOf is the hash of a value of the metadata and its kind.
func hashOf(v any) [sha256.Size]byte {
	d := &digest{hash: sha256.New()}
	d.value(v)
	d.flush()
	return [sha256.Size]byte(d.hash.Sum(nil))
}

// checkSplit checks that the metadata kv belongs to part no of count. A file
// without split keys is a complete model.
func checkSplit(kv ggml.KV, no, count int) error {
	f := File{kv: kv}
	want := func(key string, value int64) error {
		got, ok := f.Int(key)
		switch {
		case !f.Has(key):
			return fmt.Errorf("key %q is missing, so this is not part of a split model; expected %d by the file's name", key, value)
		case !ok:
			return fmt.Errorf("key %q is %s; expected the integer %d", key, f.kind(key), value)
		case got != value:
			return fmt.Errorf("key %q is %d; expected %d by the file's name (a split model's parts end in -00001-of-0000N.gguf, and the first is opened)", key, got, value)
		}
		return nil
	}
	if count == 1 && !f.Has(keySplitCount) {
		return nil
	}
	if count == 1 {
		// gguf-split writes a count of 0 into the metadata of a merged model.
		if n, ok := f.Int(keySplitCount); ok && n == 0 {
			return nil
		}
	}
	if err := want(keySplitCount, int64(count)); err != nil {
		return err
	}
	return want(keySplitNo, int64(no))
}
