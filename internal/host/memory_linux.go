package host

import (
	"bufio"
	"fmt"
	"os"
)

// ReadMemory reads /proc/meminfo and the limits of the control groups.
func ReadMemory() (Memory, bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return Memory{}, false
	}
	defer f.Close()
	var m Memory
	for s := bufio.NewScanner(f); s.Scan(); {
		var key string
		var kib int64
		if _, err := fmt.Sscanf(s.Text(), "%s %d kB", &key, &kib); err != nil {
			continue
		}
		switch key {
		case "MemTotal:":
			m.Total = kib << 10
		case "MemAvailable:":
			m.Available = kib << 10
		}
	}
	if m.Total == 0 || m.Available == 0 {
		return Memory{}, false
	}
	g := readCgroup(os.DirFS("/"))
	return g.limit(m), true
}

// CPUQuota returns how many processors' time the process may use, rounded up; 0 is no
// limit.
func CPUQuota() int {
	g := readCgroup(os.DirFS("/"))
	return g.processors()
}
