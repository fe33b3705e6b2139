// compile compiles every NAME.comp of this directory to spv/NAME.spv, with glslc of
// shaderc, and checks it with spirv-val. Beside it is NAME.sum, the hash of all sources,
// by which a test finds modules that are older than these. With arguments it compiles only
// the named ones.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ringmaster/kernels/vulkan/shaders"
)

func main() {
	names := os.Args[1:]
	if len(names) == 0 {
		files, err := filepath.Glob("*.comp")
		check(err)
		for _, f := range files {
			names = append(names, strings.TrimSuffix(f, ".comp"))
		}
	}
	check(os.MkdirAll("spv", 0o755))
	check(os.WriteFile("tables.glsl", []byte(shaders.Tables()), 0o644))
	for _, name := range names {
		sum, err := shaders.SourceSum(os.DirFS("../.."), "vulkan/shaders/"+name+".comp")
		check(err)
		if have, err := os.ReadFile("spv/" + name + ".sum"); err == nil && string(have) == sum+"\n" {
			continue
		}
		out := filepath.Join("spv", name+".spv")
		run("glslc", "--target-env=vulkan1.2", "-O0", "-Werror", "-o", out, name+".comp")
		run("spirv-val", "--target-env", "vulkan1.2", "--scalar-block-layout", out)
		check(os.WriteFile("spv/"+name+".sum", []byte(sum+"\n"), 0o644))
		fmt.Println(out)
	}
}

func run(name string, args ...string) {
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	check(c.Run())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}
