package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// threads says what each thread of a process is doing: its name, its state, and where
// in the kernel it waits. It leaves out what it may not read.
func threads(pid int) string {
	var out strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(task, name))
			return strings.TrimSpace(string(b))
		}
		state := ""
		for line := range strings.Lines(read("status")) {
			if rest, ok := strings.CutPrefix(line, "State:"); ok {
				state = strings.TrimSpace(rest)
			}
		}
		fmt.Fprintf(&out, "thread %s %s: %s, in %s\n", filepath.Base(task), read("comm"), state, read("wchan"))
	}
	return out.String()
}
