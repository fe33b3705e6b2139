//go:build unix && !linux

package harness

// threads is only known on Linux.
func threads(int) string { return "" }
