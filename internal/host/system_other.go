//go:build !darwin

package host

// SystemVersion is empty, because only macOS has Metal, where the system compiles the
// GPU's kernels.
func SystemVersion() string { return "" }
