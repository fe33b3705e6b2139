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

// Memory is a size in /proc/PID/status, such as VmRSS, in bytes; 0 if there is none.
func (p *Process) Memory(key string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if name, value, ok := strings.Cut(line, ":"); ok && name == key {
			if _, err := fmt.Sscan(value, &kib); err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
