package host

import (
	"fmt"
	"os"
	"strings"
)

// ResidentMiB returns the resident memory of the process: the file-backed part,
// which is mostly the mapped model, and the anonymous part. 0 if unknown.
func ResidentMiB() (file, own float64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		var key string
		var kib int64
		if _, err := fmt.Sscanf(line, "%s %d kB", &key, &kib); err != nil {
			continue
		}
		switch key {
		case "RssFile:":
			file = float64(kib) / 1024
		case "RssAnon:":
			own = float64(kib) / 1024
		}
	}
	return file, own
}
