//go:build !darwin

package main

// systemVersion is empty: only a GPU's kernels are compiled by the system, and only macOS has
// Metal.
func systemVersion() string { return "" }
