package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"ringmaster/distributed"
)

// CallError is a call of the library that failed. It wraps
// distributed.ErrUnavailable when this host has no usable device, else
// distributed.ErrBootstrap, and its Errno.
type CallError struct {
	Call   string // "create_qp", "modify_qp to RTR"…
	Device string // "" where none is involved yet
	Errno  syscall.Errno
	Detail string // beyond the errno, may be empty
	Cure   string // what to do, may be empty
	kind   error
}

// Error is one line: call, device, errno with its text, cure.
func (e *CallError) Error() string {
	var b strings.Builder
	b.WriteString("verbs: " + e.Call)
	if e.Device != "" {
		b.WriteString(" on " + e.Device)
	}
	b.WriteString(": ")
	switch {
	case e.Detail != "" && e.Errno != 0:
		fmt.Fprintf(&b, "%s (errno %d, %v)", e.Detail, int(e.Errno), e.Errno)
	case e.Detail != "":
		b.WriteString(e.Detail)
	default:
		fmt.Fprintf(&b, "errno %d (%v)", int(e.Errno), e.Errno)
	}
	if e.Cure != "" {
		b.WriteString("; " + e.Cure)
	}
	return b.String()
}

// Unwrap gives the kind and the errno.
func (e *CallError) Unwrap() []error {
	if e.Errno == 0 {
		return []error{e.kind}
	}
	return []error{e.kind, e.Errno}
}

// cures are what the errors of each call mean in practice. Errno 0 is every errno
// without an entry of its own. Numbers that differ between systems are listed
// with both values.
var cures = map[string]map[syscall.Errno]string{
	"get_device_list": {
		0: "is the kernel's RDMA support loaded (ib_uverbs), and on a Mac RDMA enabled with rdma_ctl in Recovery?",
	},
	"open_device": {
		0:              "is the kernel's driver for this device loaded, and may this user open /dev/infiniband/uverbs*?",
		syscall.EACCES: "this user may not open /dev/infiniband/uverbs*",
	},
	"query_device": {0: "the device does not answer: see the kernel's log"},
	"query_port":   {0: "does the device have this port? see ibv_devinfo"},
	"query_gid":    {0: "does the port have this entry in its GID table?"},
	"alloc_pd": {
		0: "the port is down (cable out, RDMA off at the other end), or protection domains are used up by earlier processes: see the port's state, in the last case restart this host",
	},
	"reg_mr": {
		0:              "the device's number of memory regions is used up (100 on Thunderbolt), or the region is not mappable",
		syscall.ENOMEM: "raise the limit of locked memory (ulimit -l unlimited), or the device's number of memory regions is used up",
	},
	"create_cq": {0: "ask for fewer completions; query_device reports the limit"},
	"create_qp": {
		0:              "ask for less depth; query_device reports the limits",
		syscall.EBUSY:  "the device's queue pairs are used up (10 on macOS 26, 3 on 27 for a Thunderbolt device, shared by all processes): end other users of the device; if there are none, crashed ones have left theirs behind, which only a power cycle gives back",
		syscall.ENOMEM: "the device's queue pairs are used up or the depth is too large; raise the limit of locked memory (ulimit -l unlimited)",
		102:            "the device has no such transport service: Thunderbolt has UC only",
		45:             "the device has no such transport service: Thunderbolt has UC only",
		95:             "the device has no such transport service: Thunderbolt has UC only",
	},
	"modify_qp to INIT": {0: "does the device have this port? destroy the queue pair before another attempt"},
	"modify_qp to RTR": {
		syscall.EINVAL: "zero or wrong GID, or the own GID is of another family than the peer's: do both ports have an address of their own (not the bridge's)?",
		60:             "the peer's GID cannot be reached over this cable: neither host may know the other as a neighbour yet (ping6 -c 1 ff02::1%enN on both, enN the port's interface), or two cables are crossed, or this is the address of another link",
		110:            "the peer's GID cannot be reached over this link: do the addresses and VLANs of both ports match?",
		syscall.EBUSY:  "the device's receiver is stuck, or a process that crashed has left resources behind: only a new queue pair may help; if it happens again, restart this host",
		96:             "the port has been idle for hours, or protection domains are used up: unplug the cable and plug it in again; if that does not help, restart this host",
		syscall.EFAULT: "the driver's pool of memory for transfers is used up: it is filled at boot, and every registration and pairing takes of it; restart this host, for trying again takes more",
		102:            "the device has no such transport service: Thunderbolt has UC only",
		95:             "the device has no such transport service: Thunderbolt has UC only",
		0:              "destroy the queue pair before another attempt",
	},
	"modify_qp to RTS": {0: "destroy the queue pair before another attempt"},
}

// Unreachable tells whether err is that of a transition to RTR whose peer is not
// reached: errno 60 of Apple's provider.
func Unreachable(err error) bool {
	var e *CallError
	return errors.As(err, &e) && e.Call == "modify_qp to RTR" && e.Errno == 60
}

// callError makes the error of a call.
func callError(call, device string, errno int, detail string) *CallError {
	e := &CallError{Call: call, Device: device, Errno: syscall.Errno(max(errno, -errno)), Detail: detail, kind: distributed.ErrBootstrap}
	switch call {
	case "open", "get_device_list", "open_device", "alloc_pd":
		e.kind = distributed.ErrUnavailable
	}
	e.Cure = cures[call][e.Errno]
	if e.Cure == "" {
		e.Cure = cures[call][0]
	}
	return e
}

// limitError is the error of a call that did not return in time.
func limitError(call, device string, detail string) *CallError {
	e := callError(call, device, 0, detail)
	e.Cure = "the driver hangs: its thread is left behind; if the process cannot be ended, restart this host"
	e.kind = distributed.ErrTimeout
	return e
}

// PostError is a post that was refused. Requests before the refused one were
// posted.
type PostError struct {
	Call   string // "post_send" or "post_recv"
	Device string
	QPN    uint32
	Posted int // requests of the chain that were posted
	Asked  int
	Errno  syscall.Errno // positive, also where the library returned it negative
}

func (e *PostError) Error() string {
	why := ""
	switch e.Errno {
	case syscall.ENOMEM:
		why = "; the queue is full: more was posted than the granted depth"
	case syscall.EINVAL:
		why = "; wrong request, or the queue pair is not in a state that accepts it"
	}
	return fmt.Sprintf("verbs: %s on %s: qp %#x took %d of %d requests: errno %d (%v)%s",
		e.Call, e.Device, e.QPN, e.Posted, e.Asked, int(e.Errno), e.Errno, why)
}

// Unwrap gives the errno.
func (e *PostError) Unwrap() error { return e.Errno }

// PollError is a completion queue that has failed: the poll returned a negative
// number, or more than was asked for.
type PollError struct {
	Device string
	Result int
	Asked  int
}

func (e *PollError) Error() string {
	if e.Result > e.Asked {
		return fmt.Sprintf("verbs: poll_cq on %s returned %d completions where %d were asked for: the queue cannot be trusted", e.Device, e.Result, e.Asked)
	}
	return fmt.Sprintf("verbs: poll_cq on %s returned %d: the completion queue has failed, perhaps overrun", e.Device, e.Result)
}

// ErrNoGID is the error of the functions that choose a GID.
var ErrNoGID = errors.New("no such GID")
