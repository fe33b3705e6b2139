//go:build !darwin

package host

// SystemVersion is empty: only a GPU's kernels are compiled by the system, and only macOS has
// Metal.
func SystemVersion() string { return "" }
