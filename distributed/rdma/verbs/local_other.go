//go:build !cgo || !(linux || darwin) || static

package verbs

// openLocal fails, because a build without cgo cannot call C, and a static program loads no
// libraries.
func openLocal(path string) (Provider, string) {
	return nil, path + ": this program is static, was built without cgo, or for a system without verbs; use an archive whose name ends in -rdma, or build it here"
}
