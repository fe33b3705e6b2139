// Package shaders has the kernels of the Vulkan device: GLSL, compiled by "go generate"
// to SPIR-V modules, which are part of the program. See kernels.go for their table.
package shaders

//go:generate go run ./compile

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
)

//go:embed spv/*.spv
var modules embed.FS

// Module is the SPIR-V of a module: whole words, little-endian.
func Module(name string) ([]byte, error) {
	code, err := modules.ReadFile("spv/" + name + ".spv")
	if err != nil {
		return nil, fmt.Errorf("there is no SPIR-V module %s", name)
	}
	return code, nil
}

var included = regexp.MustCompile(`(?m)^\s*#\s*include\s+"([^"]+)"`)

// SourceSum is the SHA-256 of a source in tree and of all files that it includes, with
// their names, in hexadecimal.
func SourceSum(tree fs.FS, name string) (string, error) {
	sources := map[string][]byte{}
	var read func(name string) error
	read = func(name string) error {
		if _, ok := sources[name]; ok {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		sources[name] = text
		for _, m := range included.FindAllSubmatch(text, -1) {
			file := path.Join(path.Dir(name), string(m[1]))
			if file == "stdint.h" {
				continue
			}
			if err := read(file); err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(name); err != nil {
		return "", err
	}
	var names []string
	for n := range sources {
		names = append(names, n)
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, n := range names {
		fmt.Fprintf(sum, "%s %d\n", n, len(sources[n]))
		sum.Write(sources[n])
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
