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
