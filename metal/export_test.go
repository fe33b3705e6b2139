//go:build (darwin && cgo) || metalsim

package metal

import (
	"runtime"

	"ringmaster/metal/shaders"
)

// Simulated reports that the device is the software one.
const Simulated = runtime.GOOS != "darwin"

// Sources are the texts of all libraries, by their names.
func Sources() (map[string]string, error) {
	texts := map[string]string{}
	for _, l := range shaders.Libraries {
		text, err := shaders.Library(l.Files...)
		if err != nil {
			return nil, err
		}
		texts[l.Name] = text
	}
	return texts, nil
}

// Renewed reports whether a thread keeps the memory of the GPU wired.
func (b *Backend) Renewed() bool { return b.device.renewed() }
