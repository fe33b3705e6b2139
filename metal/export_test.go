//go:build (darwin && cgo) || metalsim

package metal

import (
	"runtime"

	"ringmaster/kernels/gpu"
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

// swapped is a device with another kernel in place of one.
type swapped struct {
	*device
	name, by string
}

func (d swapped) Pipeline(library, kernel string) (number, threads int, err error) {
	if kernel == d.name {
		kernel = d.by
	}
	return d.device.Pipeline(library, kernel)
}

// OpenSwapped opens a device that runs kernel `by` where kernel `name` is wanted, of the same
// library.
func OpenSwapped(name, by string) (*gpu.Backend, error) {
	d, err := openDevice(Options{})
	if err != nil {
		return nil, err
	}
	return gpu.New(swapped{d, name, by})
}
