package shaders

// Kernel is what a device loads for a kernel of kernels/gpu.
type Kernel struct {
	// Module is the name of the SPIR-V module.
	Module string
	// Constants are the values of the module's specialization constants from number
	// FirstConstant on. The device sets those before: see prelude.glsl.
	Constants []uint32
}

// FirstConstant is the number of the first specialization constant of Kernel.Constants.
const FirstConstant = 10

// Name names a kernel as kernels/gpu does.
type Name struct{ Library, Kernel string }

// Kernels is the table of all kernels, for reading only. A file for each family adds its own.
var Kernels = map[Name]Kernel{}

// add adds a kernel to the table.
func add(library, kernel, module string, constants ...uint32) {
	Kernels[Name{library, kernel}] = Kernel{module, constants}
}

func init() { add("selftest", "selftest", "selftest") }
