// Package host reads facts about the machine and this process from the operating system:
// memory, the limits of control groups, file systems.
package host

// Memory is the host's memory in bytes, or what the limits of the process's control
// groups leave.
type Memory struct{ Total, Available int64 }

// Within returns the part of m that a process may use if something, such as a GPU, limits
// it to limit bytes; 0 is no limit. known says whether m is known.
func (m Memory) Within(limit int64, known bool) (Memory, bool) {
	switch {
	case limit == 0:
		return m, known
	case !known:
		return Memory{Total: limit, Available: limit}, true
	}
	return Memory{Total: min(m.Total, limit), Available: min(m.Available, limit)}, true
}

// ResidentBytes returns the memory that the process holds, including mapped files; 0 if
// unknown.
func ResidentBytes() int64 {
	file, own := ResidentMiB()
	return int64((file + own) * (1 << 20))
}
