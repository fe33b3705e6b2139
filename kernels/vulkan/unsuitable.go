package vulkan

// UnsuitableError is the error of Open where the host has no driver or no GPU that the
// kernels can run on: another backend must do.
type UnsuitableError struct {
	Reason string
	Cure   string // "" if Reason has it
	NoGPU  bool   // there is none, as opposed to one that lacks something
}

// Error says what is missing and what to do.
func (e *UnsuitableError) Error() string {
	if e.Cure == "" {
		return e.Reason
	}
	return e.Reason + "; " + e.Cure
}

// Options of Open.
type Options struct {
	// Device is a part of the name of the device, or its number in Devices. "" means that in
	// DeviceVariable; without that the discrete GPU with the most memory, else an integrated
	// one, never a device that computes on the CPU.
	Device string
}

// DeviceVariable is the environment variable that names the device.
const DeviceVariable = "RINGMASTER_VULKAN_DEVICE"
