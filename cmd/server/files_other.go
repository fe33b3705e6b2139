//go:build !linux && !darwin

package main

// fileSystem is unknown on this system.
func fileSystem(string) (name string, network bool) { return "unknown", false }

// cachedShare is unknown on this system.
func cachedShare([][]byte) float64 { return -1 }
