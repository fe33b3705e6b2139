//go:build !unix

package accept

import "math"

// fileLimit is unlimited: this system has no limit for each process.
func fileLimit() int { return math.MaxInt }
