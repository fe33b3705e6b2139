package vulkan

import (
	"encoding/binary"
	"errors"
)

// Words of SPIR-V: the opcodes, capabilities and modes that float modes need.
const (
	spirvMagic       = 0x07230203
	opExtension      = 10
	opEntryPoint     = 15
	opExecutionMode  = 16
	opCapability     = 17
	opExtInstImport  = 11
	opMemoryModel    = 14
	modeDenormKeep   = 4459
	modeNaNPreserve  = 4461
	modeNearest      = 4462
	capDenormKeep    = 4464
	capNaNPreserve   = 4466
	capNearest       = 4467
	floatBits        = 32
	spirvHeaderWords = 5
)

var errSPIRV = errors.New("not a SPIR-V module of one kernel")

// withModes asks in a module for float32 arithmetic that keeps subnormals, NaNs and
// infinities and rounds to nearest, as far as the device knows these modes. GLSL has no
// words for them, and a module that asks for a mode that the device does not know is
// invalid.
func withModes(code []byte, denormals, nans, nearest bool) ([]uint32, error) {
	words := make([]uint32, len(code)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	if len(code)%4 != 0 || len(words) < spirvHeaderWords || words[0] != spirvMagic {
		return nil, errSPIRV
	}
	type mode struct {
		wanted      bool
		number, cap uint32
	}
	modes := []mode{{denormals, modeDenormKeep, capDenormKeep}, {nans, modeNaNPreserve, capNaNPreserve}, {nearest, modeNearest, capNearest}}
	// The order of a module: capabilities, extensions, imports, memory model, entry points,
	// modes, and all else.
	out := append([]uint32(nil), words[:spirvHeaderWords]...)
	var entry uint32
	capabilities, extensions, done := false, false, false
	for at := spirvHeaderWords; at < len(words); {
		n, op := int(words[at]>>16), words[at]&0xffff
		if n == 0 || at+n > len(words) {
			return nil, errSPIRV
		}
		if op != opCapability && !capabilities {
			capabilities = true
			for _, m := range modes {
				if m.wanted {
					out = append(out, 2<<16|opCapability, m.cap)
				}
			}
		}
		if capabilities && op != opExtension && !extensions {
			extensions = true
			// Older devices know the modes by this name only; newer ones accept it.
			out = append(out, extension("SPV_KHR_float_controls")...)
		}
		if op == opEntryPoint {
			entry = words[at+2]
		} else if entry != 0 && !done {
			done = true
			for _, m := range modes {
				if m.wanted {
					out = append(out, 4<<16|opExecutionMode, entry, m.number, floatBits)
				}
			}
		}
		out = append(out, words[at:at+n]...)
		at += n
	}
	if !done {
		return nil, errSPIRV
	}
	return out, nil
}

// extension is the instruction that declares an extension.
func extension(name string) []uint32 {
	text := append([]byte(name), 0)
	for len(text)%4 != 0 {
		text = append(text, 0)
	}
	out := []uint32{uint32(1+len(text)/4)<<16 | opExtension}
	for i := 0; i < len(text); i += 4 {
		out = append(out, binary.LittleEndian.Uint32(text[i:]))
	}
	return out
}
