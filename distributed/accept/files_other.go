//go:build !unix

package accept

import "math"

// FileLimit is unlimited: this system has no limit for each process.
func FileLimit() int { return math.MaxInt }
