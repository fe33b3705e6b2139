//go:build !cgo || !(linux || darwin)

package verbs

// openLocal fails, because a build without cgo cannot call C.
func openLocal(path string) (Provider, string) {
	return nil, path + ": this program was built without cgo, or for a system without verbs"
}
