package shaders_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringmaster/kernels/vulkan/shaders"
)

// TestModulesAreCurrent: a module is older than its sources, or nothing compiles to it.
func TestModulesAreCurrent(t *testing.T) {
	sources, err := filepath.Glob("*.comp")
	if err != nil || len(sources) == 0 {
		t.Fatal("no sources", err)
	}
	for _, source := range sources {
		name := strings.TrimSuffix(source, ".comp")
		want, err := shaders.SourceSum(os.DirFS("../.."), "vulkan/shaders/"+source)
		if err != nil {
			t.Error(err)
			continue
		}
		have, err := os.ReadFile("spv/" + name + ".sum")
		if err != nil || strings.TrimSpace(string(have)) != want {
			t.Errorf("spv/%s.spv is not made of the present sources: run go generate ./kernels/vulkan/shaders", name)
		}
		if _, err := shaders.Module(name); err != nil {
			t.Error(err)
		}
	}
	modules, err := filepath.Glob("spv/*")
	if err != nil || len(modules) != 2*len(sources) {
		t.Errorf("spv has %d files for %d sources, expected two for each", len(modules), len(sources))
	}
}

// TestTableOfKernels: every module in spv is one of a kernel of the table, and every kernel of
// the table has its module.
func TestTableOfKernels(t *testing.T) {
	modules, err := filepath.Glob("spv/*.spv")
	if err != nil || len(modules) == 0 {
		t.Fatal("no modules", err)
	}
	unused := map[string]bool{}
	for _, m := range modules {
		unused[strings.TrimSuffix(filepath.Base(m), ".spv")] = true
	}
	for name, k := range shaders.Kernels {
		delete(unused, k.Module)
		if _, err := shaders.Module(k.Module); err != nil {
			t.Errorf("kernel %s of %s: %v", name.Kernel, name.Library, err)
		}
	}
	for m := range unused {
		t.Errorf("spv/%s.spv is the module of no kernel of the table", m)
	}
}
