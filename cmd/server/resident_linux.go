package main

import (
	"fmt"
	"os"
	"strings"
)

// residentMiB is the resident memory of the process: pages of files, mapped
// models above all, and pages of its own. 0 if the system does not tell.
func residentMiB() (file, own float64) {
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
