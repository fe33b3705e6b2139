package pull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// keptRecord is the file beside kept models that says which files they are.
const keptRecord = "fetched.json"

// mostRecord bounds the bytes of a record. A model has few files.
const mostRecord = 1 << 20

// keptFile is a file of a kept model.
type keptFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// kept is the content of a record.
type kept struct {
	Reference string     `json:"reference"`
	Files     []keptFile `json:"files"` // in the order of their parts
}

// Kept is Pull into a folder of o.Dir that belongs to ref alone. If an earlier call has
// fetched everything and the files still have their sizes, it asks no server and reads no
// file: a model of 100 GB would take minutes to hash at every start, and a server starts
// without a network too.
func Kept(ctx context.Context, ref string, o Options) ([]string, error) {
	if _, err := parse(ref); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(ref))
	o.Dir = filepath.Join(o.Dir, hex.EncodeToString(sum[:8]))
	if paths := recorded(ref, o.Dir); paths != nil {
		return paths, nil
	}
	o.Report.Say(fmt.Sprintf("%s is kept in %s", ref, o.Dir))
	paths, err := Pull(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	return paths, record(ref, o.Dir, paths)
}

// recorded returns the files that a record lists, nil unless all of them are in the folder
// with their sizes.
func recorded(ref, dir string) (paths []string) {
	path := filepath.Join(dir, keptRecord)
	info, err := os.Stat(path)
	if err != nil || info.Size() > mostRecord {
		return nil
	}
	text, err := os.ReadFile(path)
	var k kept
	if err != nil || json.Unmarshal(text, &k) != nil || k.Reference != ref {
		return nil
	}
	for _, f := range k.Files {
		path := filepath.Join(dir, f.Name)
		info, err := os.Stat(path)
		if err != nil || filepath.Base(f.Name) != f.Name || info.Size() != f.Size {
			return nil
		}
		paths = append(paths, path)
	}
	return paths
}

// record writes the record of the files of a model. It is replaced in one step, so that
// none is cut short.
func record(ref, dir string, paths []string) error {
	k := kept{Reference: ref}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		k.Files = append(k.Files, keptFile{filepath.Base(path), info.Size()})
	}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, keptRecord)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, keptRecord))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
