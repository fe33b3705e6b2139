package host

import (
	"fmt"
	"os"
	"strings"
)

// ResidentMiB returns the resident memory of the process: the file-backed part,
// which is mostly the mapped model, and the anonymous part. 0 if unknown.
func ResidentMiB() (file, own float64) {
	text, _ := os.ReadFile("/proc/self/status")
	return sizeMiB(text, "RssFile:"), sizeMiB(text, "RssAnon:")
}

// HugeFileMiB returns how much of the resident file-backed memory is mapped as huge pages.
// 0 if unknown.
func HugeFileMiB() float64 {
	text, _ := os.ReadFile("/proc/self/smaps_rollup")
	return sizeMiB(text, "FilePmdMapped:")
}

// sizeMiB returns the size in the line of a key of a file under /proc, 0 if there is none.
func sizeMiB(text []byte, key string) float64 {
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
