package host

import (
	"fmt"
	"os"
	"strings"
)

// ResidentMiB returns the resident memory of the process: the file-backed part,
// which is mostly the mapped model, and the anonymous part. 0 if unknown.
func ResidentMiB() (file, own float64) {
	return sizeMiB("/proc/self/status", "RssFile:"), sizeMiB("/proc/self/status", "RssAnon:")
}

// HugeFileMiB returns how much of the resident file-backed memory is mapped as huge pages.
// 0 if unknown.
func HugeFileMiB() float64 { return sizeMiB("/proc/self/smaps_rollup", "FilePmdMapped:") }

// sizeMiB returns the size that a line of a file under /proc gives, 0 if there is none.
func sizeMiB(path, key string) float64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if rest, ok := strings.CutPrefix(line, key); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err == nil {
				return float64(kib) / 1024
			}
		}
	}
	return 0
}
