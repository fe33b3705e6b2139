package metal

import (
	"ringmaster/internal/host"
)

// Kernels names what computes on a GPU: the chip, because the matrix units of different
// ones may add in different orders, and the system, because its compiler makes the kernels
// and MSL before 3.2 lets it contract a product and a sum.
func Kernels(b *Backend) string {
	name := b.Name()
	if system := host.SystemVersion(); system != "" {
		name += " on " + system
	}
	return name
}
