package forecast

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringmaster/gguf"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/synthetic"
)

// presets maps the names of models to the presets of their true shapes.
var presets = map[string]string{
	"v4-flash": "flash", "v4-pro": "pro", "v2-lite": "v2-lite", "v2": "v2", "v3": "v3", "r1": "v3", "k2": "k2", "moonlight": "moonlight", "glm-flash": "glm-flash",
	"v3.2": "v32", "glm-5": "glm5",
}

// PresetNames returns the names of the shapes that need no file, in order.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// open opens the model, or writes the preset's shape with holes for the weights.
func (o *Options) open() (f *gguf.File, done func(), err error) {
	if (o.Model == "") == (o.Preset == "") {
		return nil, nil, usage.Errorf("give --model FILE, or --preset with one of %s", strings.Join(PresetNames(), ", "))
	}
	if o.Model != "" {
		if o.Experts != "" {
			return nil, nil, usage.Errorf("--experts is the type of a preset's experts; a file has its own")
		}
		if f, err = arch.OpenFile(o.Model); err != nil {
			return nil, nil, arch.Explain(err)
		}
		if err := arch.CheckTensors(f); err != nil {
			return nil, nil, errors.Join(arch.Explain(err), f.Close())
		}
		return f, func() { f.Close() }, nil // nothing is written
	}
	name, ok := presets[o.Preset]
	if !ok {
		return nil, nil, usage.Errorf("--preset is %q; expected one of %s", o.Preset, strings.Join(PresetNames(), ", "))
	}
	c, err := synthetic.Preset(name)
	if err != nil {
		return nil, nil, err
	}
	c.Name = "the shape of " + o.Preset
	if o.Experts != "" {
		if err := c.SetExperts(o.Experts); err != nil {
			return nil, nil, usage.Errorf("--experts: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "ringmaster-plan-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { os.RemoveAll(dir) } // if that fails, what is left lies with other temporary files
	path := filepath.Join(dir, o.Preset+".gguf")
	if _, err = c.WriteFile(path); err == nil {
		f, err = gguf.Open(path)
	}
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("%s: %w; set TMPDIR to a file system with sparse files", c.Name, err)
	}
	return f, func() { f.Close(); remove() }, nil
}
