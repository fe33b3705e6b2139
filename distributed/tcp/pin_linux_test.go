package tcp

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin keeps all threads of this process on one processor. New threads inherit
// the setting.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return setAll(set)
}

func setAll(set unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}

// unpin lets this process run on any of the first cpus processors again.
func unpin(cpus int) error {
	var set unix.CPUSet
	for i := range cpus {
		set.Set(i)
	}
	return setAll(set)
}
