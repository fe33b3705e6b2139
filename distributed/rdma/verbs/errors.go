package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"ringmaster/distributed"
)

// CallError says that a call of the library failed. It wraps its Errno and
// distributed.ErrUnavailable if this host has no usable device, otherwise
// distributed.ErrBootstrap.
type CallError struct {
	Call   string // "create_qp", "modify_qp to RTR"…
	Device string // "" if none is involved yet
	Errno  syscall.Errno
	Detail string // beyond the errno, may be empty
	Cure   string // what to do, may be empty
	kind   error
}

// Error returns one line: call, device, errno with its text, cure.
func (e *CallError) Error() string {
	var b strings.Builder
	b.WriteString(e.Call)
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

// Unwrap returns the kind and the errno.
func (e *CallError) Unwrap() []error {
	if e.Errno == 0 {
		return []error{e.kind}
	}
	return []error{e.kind, e.Errno}
}

// cures say what the errors of each call mean in practice. Errno 0 stands for
// every errno without its own entry. Numbers that differ between systems are
// listed with both values.
var cures = map[string]map[syscall.Errno]string{
	"get_device_list": {
		0: "check that the kernel's RDMA support is loaded (ib_uverbs), on a Mac that RDMA is enabled with rdma_ctl in Recovery",
	},
	"open_device": {
		0:              "check that the kernel's driver for this device is loaded and that this user may open /dev/infiniband/uverbs*",
		syscall.EACCES: "this user may not open /dev/infiniband/uverbs*",
	},
	"query_device": {0: "the device does not answer: see the kernel's log"},
	"query_port":   {0: "check with ibv_devinfo that the device has this port"},
	"query_gid":    {0: "check that the port has this entry in its GID table"},
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
		syscall.EBUSY:  "the device's queue pairs are used up (10 on macOS 26, 3 on 27 for a Thunderbolt device, shared by all processes): end other users of the device; if none are running, crashed ones have left theirs behind, which only a power cycle frees",
		syscall.ENOMEM: "the device's queue pairs are used up or the depth is too large; raise the limit of locked memory (ulimit -l unlimited)",
		102:            "the device has no such transport service: Thunderbolt supports only UC",
		45:             "the device has no such transport service: Thunderbolt supports only UC",
		95:             "the device has no such transport service: Thunderbolt supports only UC",
	},
	"modify_qp to INIT": {0: "check that the device has this port; destroy the queue pair before another attempt"},
	"modify_qp to RTR": {
		syscall.EINVAL: "zero or wrong GID, or the own GID is of another family than the peer's: check that both ports have their own address (not the bridge's)",
		60:             "the peer's GID cannot be reached over this cable: the hosts may not know each other as neighbours yet (ping6 -c 1 ff02::1%enN on both, enN the port's interface), or two cables are crossed, or this is the address of another link",
		110:            "the peer's GID cannot be reached over this link: check that the addresses and VLANs of both ports match",
		syscall.EBUSY:  "the device's receiver is stuck, or a process that crashed has left resources behind: only a new queue pair may help; if it happens again, restart this host",
		96:             "the port has been idle for hours, or protection domains are used up: unplug the cable and plug it in again; if that does not help, restart this host",
		syscall.EFAULT: "the driver's pool of memory for transfers is used up: it is filled at boot, and every registration and pairing uses some of it; restart this host, because trying again uses more",
		102:            "the device has no such transport service: Thunderbolt supports only UC",
		95:             "the device has no such transport service: Thunderbolt supports only UC",
		0:              "destroy the queue pair before another attempt",
	},
	"modify_qp to RTS": {0: "destroy the queue pair before another attempt"},
}

// Unreachable reports whether err says that a transition to RTR did not reach the
// peer, which is errno 60 of Apple's provider.
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

// limitError makes the error of a call that did not return in time.
func limitError(call, device string, detail string) *CallError {
	e := callError(call, device, 0, detail)
	e.Cure = "the driver hangs: its thread is left behind; if the process cannot be ended, restart this host"
	e.kind = distributed.ErrTimeout
	return e
}

// PostError says that a post was refused. Requests before the refused one were
// posted.
type PostError struct {
	Call   string // "post_send" or "post_recv"
	Device string
	QPN    uint32
	Posted int // requests of the chain that were posted
	Asked  int
	Errno  syscall.Errno // positive, even if the library returned it negative
}

func (e *PostError) Error() string {
	why := ""
	switch e.Errno {
	case syscall.ENOMEM:
		why = "; the queue is full: more was posted than the granted depth"
	case syscall.EINVAL:
		why = "; wrong request, or the queue pair is not in a state that accepts it"
	}
	return fmt.Sprintf("%s on %s: qp %#x accepted %d of %d requests: errno %d (%v)%s",
		e.Call, e.Device, e.QPN, e.Posted, e.Asked, int(e.Errno), e.Errno, why)
}

// Unwrap returns the errno.
func (e *PostError) Unwrap() error { return e.Errno }

// PollError says that a completion queue has failed: the poll returned a negative
// number, or more than was requested.
type PollError struct {
	Device string
	Result int
	Asked  int
}

func (e *PollError) Error() string {
	if e.Result > e.Asked {
		return fmt.Sprintf("poll_cq on %s returned %d completions although %d were requested: the queue cannot be trusted", e.Device, e.Result, e.Asked)
	}
	return fmt.Sprintf("poll_cq on %s returned %d: the completion queue has failed, perhaps overrun", e.Device, e.Result)
}

// ErrNoGID is the error of the functions that choose a GID.
var ErrNoGID = errors.New("no such GID")
