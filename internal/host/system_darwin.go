package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SystemVersion returns the version of macOS with its build, "" if unknown.
func SystemVersion() string {
	version, err := unix.Sysctl("kern.osproductversion")
	if err != nil {
		return ""
	}
	build, err := unix.Sysctl("kern.osversion")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("macOS %s (%s)", version, build)
}
