//go:build !linux && !darwin

package main

// fileSystem is not implemented for this system.
func fileSystem(string) (name string, network bool) { return "unknown", false }

// cachedShare is not implemented for this system.
func cachedShare([][]byte) float64 { return -1 }
