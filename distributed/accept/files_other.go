//go:build !unix

package accept

import "math"

// FileLimit returns no limit, because this system has none for a process.
func FileLimit() int { return math.MaxInt }
