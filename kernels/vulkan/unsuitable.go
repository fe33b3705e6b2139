package vulkan

// UnsuitableError is the error of Open where the host has no driver or no GPU that the
// kernels can run on: another backend must do.
type UnsuitableError struct{ Reason string }

// Error says what is missing and what to do.
func (e *UnsuitableError) Error() string { return e.Reason }

// Options of Open.
type Options struct {
	// Device is a part of the name of the device, or its number in Devices. "" means the
	// first discrete GPU with the most memory, then an integrated one; never a device that
	// computes on the CPU.
	Device string
}
