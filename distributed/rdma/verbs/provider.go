package verbs

import "unsafe"

// Provider makes the calls of a verbs library: in this process (Open), or in a
// separate process (package helper). Results called errno are 0 or an errno of
// either sign. Every call may block; Library bounds them.
type Provider interface {
	// Where says for people in which process the calls are made.
	Where() string
	// Devices lists the devices by name.
	Devices() (names []string, errno int)
	// Open opens a device; with neither calls nor errno, no device has the name.
	Open(device string) (c Calls, errno int)
	// Close unloads the library; no device is open. After lost calls the code must
	// stay loaded, because they may still return.
	Close(lost bool)
}

// Calls are the calls on one open device. Handles of queue pairs and completion
// queues begin with the struct rmv_qp or rmv_cq, whose context has the functions
// that rm_verbs.h posts and polls with; only the provider interprets those of
// other objects.
type Calls interface {
	Close() (errno int)
	QueryDevice() (a DeviceAttr, errno int)
	QueryPort(port int) (a PortAttr, errno int)
	QueryGID(port, index int) (g GID, kind GIDType, errno int)
	AllocPD() (pd unsafe.Pointer, errno int)
	DeallocPD(pd unsafe.Pointer) (errno int)
	// NewSlab makes memory that RegMR can register; see the function NewSlab.
	NewSlab(n int) (*Slab, error)
	RegMR(pd unsafe.Pointer, s *Slab, access Access) (r Region, errno int)
	DeregMR(mr unsafe.Pointer) (errno int)
	CreateCQ(n int) (cq unsafe.Pointer, errno int)
	DestroyCQ(cq unsafe.Pointer) (errno int)
	CreateQP(pd, sendCQ, recvCQ unsafe.Pointer, kind QPType, asked Caps) (qp unsafe.Pointer, num uint32, errno int)
	DestroyQP(qp unsafe.Pointer) (errno int)
	ModifyQP(qp unsafe.Pointer, t Transition) (errno int)
	QueryQP(qp unsafe.Pointer) (granted Caps, s QPState, errno int)
	// Post posts sends or receives and returns how many were accepted.
	Post(qp unsafe.Pointer, send bool, reqs []Request) (n, errno int)
	// Settle waits until the device has received all posted requests.
	Settle(qp unsafe.Pointer) (errno int)
	// Poll takes completions. A negative number, or more than requested, means
	// that the queue has failed.
	Poll(cq unsafe.Pointer, out []WC) int
	// Fault returns what broke a completion queue or a queue pair of it, if a
	// failed poll or post could not say it; nil if nothing did.
	Fault(cq unsafe.Pointer) error
	// Lost is closed when the device and all its objects are lost; Err then says
	// why. A nil channel means that the device cannot be lost.
	Lost() <-chan struct{}
	Err() error
}

// Region is registered memory.
type Region struct {
	Handle     unsafe.Pointer
	LKey, RKey uint32
	Base       uint64 // where peers find its first byte
}

// Transition has the attributes that ibv_modify_qp sets, named as in struct
// ibv_qp_attr, and the mask of the fields that count.
type Transition struct {
	Mask                                       int
	State, Access, Port, MTU                   int
	RQPSN, SQPSN, DestQPN                      uint32
	GID                                        GID
	SGIDIndex, HopLimit, Global                int
	LID                                        uint16
	Timeout, Retry, RNR, MinRNR, MaxRD, DestRD int
}
