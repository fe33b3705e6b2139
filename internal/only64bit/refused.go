//go:build 386 || arm || mips || mipsle

package only64bit

// The name is the compiler's message, because there is no such variable.
var _ = Ringmaster_needs_a_64_bit_system_such_as_amd64_or_arm64
