package main

import (
	"bufio"
	"fmt"
	"os"
)

// memory is the host's memory in bytes, or what the limits of the process's
// control groups leave of it.
type memory struct{ total, available int64 }

// hostMemory reads /proc/meminfo and the limits of the control groups.
func hostMemory() (memory, bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return memory{}, false
	}
	defer f.Close()
	var m memory
	for s := bufio.NewScanner(f); s.Scan(); {
		var key string
		var kib int64
		if _, err := fmt.Sscanf(s.Text(), "%s %d kB", &key, &kib); err != nil {
			continue
		}
		switch key {
		case "MemTotal:":
			m.total = kib << 10
		case "MemAvailable:":
			m.available = kib << 10
		}
	}
	if m.total == 0 || m.available == 0 {
		return memory{}, false
	}
	g := readCgroup(os.DirFS("/"))
	return g.limit(m), true
}

// cpuQuota is how many processors' time the process may use, rounded up; 0 is no
// limit.
func cpuQuota() int {
	g := readCgroup(os.DirFS("/"))
	return g.processors()
}
