package kernels

import "time"

// DeviceTime is how long a device has computed since it was opened, as its own clock says, in
// all that was flushed. It is false for a backend that does not know, or that is the CPU. A
// backend that may know has a method DeviceTime.
func DeviceTime(b Backend) (time.Duration, bool) {
	if c, ok := b.(interface{ DeviceTime() (time.Duration, bool) }); ok {
		return c.DeviceTime()
	}
	return 0, false
}
