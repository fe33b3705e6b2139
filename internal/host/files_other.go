//go:build !linux && !darwin

package host

// FileSystem is unknown on this system.
func FileSystem(string) (name string, network bool) { return "unknown", false }

// CachedShare is unknown on this system.
func CachedShare([][]byte) float64 { return -1 }
