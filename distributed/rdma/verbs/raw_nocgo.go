//go:build !cgo || !(linux || darwin)

package verbs

import (
	"syscall"
	"unsafe"
)

// A build without cgo cannot call C. Open fails, so the functions below are
// never called.

func rawOpen(path string) (rawLib, string) {
	return rawLib{}, path + ": this program was built without cgo, or for a system without verbs"
}

const noSys = int(syscall.ENOSYS)

func rawClose(rawLib)                                               {}
func rawDeviceNames(rawLib) ([]string, int)                         { return nil, noSys }
func rawOpenDevice(rawLib, string) (unsafe.Pointer, int)            { return nil, noSys }
func rawCloseDevice(rawLib, unsafe.Pointer) int                     { return noSys }
func rawQueryDevice(rawLib, unsafe.Pointer) (DeviceAttr, int)       { return DeviceAttr{}, noSys }
func rawQueryPort(rawLib, unsafe.Pointer, int) (PortAttr, int)      { return PortAttr{}, noSys }
func rawAllocPD(rawLib, unsafe.Pointer) (unsafe.Pointer, int)       { return nil, noSys }
func rawDeallocPD(rawLib, unsafe.Pointer) int                       { return noSys }
func rawDeregMR(rawLib, unsafe.Pointer) int                         { return noSys }
func rawDestroyCQ(rawLib, unsafe.Pointer) int                       { return noSys }
func rawDestroyQP(rawLib, unsafe.Pointer) int                       { return noSys }
func rawModifyQP(rawLib, unsafe.Pointer, Transition) int            { return noSys }
func rawQueryQP(rawLib, unsafe.Pointer) (Caps, QPState, int)        { return Caps{}, 0, noSys }
func rawPost(unsafe.Pointer, bool, []Request) (int, int)            { return 0, noSys }
func rawPoll(unsafe.Pointer, []WC) int                              { return -1 }
func rawCreateCQ(rawLib, unsafe.Pointer, int) (unsafe.Pointer, int) { return nil, noSys }

func rawQueryGID(rawLib, unsafe.Pointer, int, int) (GID, GIDType, int) {
	return GID{}, GIDUnknown, noSys
}

func rawRegMR(rawLib, unsafe.Pointer, []byte, int) (raw unsafe.Pointer, lkey, rkey uint32, errno int) {
	return nil, 0, 0, noSys
}

func rawCreateQP(rawLib, unsafe.Pointer, unsafe.Pointer, unsafe.Pointer, int, Caps) (unsafe.Pointer, uint32, int) {
	return nil, 0, noSys
}
