package verbs

import (
	"fmt"
	"strings"
)

// Status is the status of a completion (enum ibv_wc_status).
type Status uint32

// The statuses that code refers to; the table has all.
const (
	StatusOK       Status = 0
	StatusLocLen   Status = 1
	StatusLocProt  Status = 4
	StatusFlush    Status = 5
	StatusRemInv   Status = 9
	StatusRetryExc Status = 12
	StatusRNRExc   Status = 13
	StatusGeneral  Status = 21
)

// statuses has the name of each status and what it means for this program.
var statuses = [...]struct{ name, meaning string }{
	0:  {"SUCCESS", "done"},
	1:  {"LOC_LEN_ERR", "the message does not fit the receive: both sides disagree on the size or the number of 4 KiB frames"},
	2:  {"LOC_QP_OP_ERR", "the queue pair refused the request as malformed"},
	3:  {"LOC_EEC_OP_ERR", "obsolete (RD)"},
	4:  {"LOC_PROT_ERR", "the buffer is not in registered memory, or its registration has ended"},
	5:  {"WR_FLUSH_ERR", "the queue pair had failed before, so this is a consequence and not the cause"},
	6:  {"MW_BIND_ERR", "memory window (not used here)"},
	7:  {"BAD_RESP_ERR", "the peer's answer breaks the protocol"},
	8:  {"LOC_ACCESS_ERR", "a write of the peer was not permitted here"},
	9:  {"REM_INV_REQ_ERR", "the peer refused the message: longer than its receive"},
	10: {"REM_ACCESS_ERR", "the peer refused access to its memory"},
	11: {"REM_OP_ERR", "the peer could not execute the request (soft-RoCE reports this for a message longer than its receive)"},
	12: {"RETRY_EXC_ERR", "no answer after all retries: the peer is dead or the link is down"},
	13: {"RNR_RETRY_EXC_ERR", "the peer never posted a receive"},
	14: {"LOC_RDD_VIOL_ERR", "obsolete (RD)"},
	15: {"REM_INV_RD_REQ_ERR", "obsolete (RD)"},
	16: {"REM_ABORT_ERR", "the peer aborted the request"},
	17: {"INV_EECN_ERR", "obsolete (RD)"},
	18: {"INV_EEC_STATE_ERR", "obsolete (RD)"},
	19: {"FATAL_ERR", "the device or the port has failed"},
	20: {"RESP_TIMEOUT_ERR", "the peer did not answer in time"},
	21: {"GENERAL_ERR", "other transport error"},
	22: {"TM_ERR", "tag matching (not used here)"},
	23: {"TM_RNDV_INCOMPLETE", "tag matching (not used here)"},
}

// Statuses is the number of statuses that have a name.
const Statuses = len(statuses)

// String returns the name without IBV_WC_.
func (s Status) String() string {
	if int(s) < len(statuses) {
		return statuses[s].name
	}
	return fmt.Sprintf("UNKNOWN_STATUS_%d", uint32(s))
}

// Meaning says in one clause what the status means here.
func (s Status) Meaning() string {
	if int(s) < len(statuses) {
		return statuses[s].meaning
	}
	return "a status that this program does not know"
}

// CompletionError says that a request completed with a failure.
type CompletionError struct {
	Op        string // "all_sum"…
	Seq       uint64 // number of the operation in its group
	Rank      int    // the rank that reports
	Peer      int    // the rank at the other end
	Rail      int
	Device    string
	QPN       uint32
	WRID      uint64
	Status    Status
	VendorErr uint32
}

// NewCompletionError copies the valid fields of a failed completion; the caller
// adds where it happened.
func NewCompletionError(wc WC) *CompletionError {
	return &CompletionError{Peer: -1, Rank: -1, Rail: -1, QPN: wc.QPN, WRID: wc.ID, Status: wc.Status, VendorErr: wc.VendorErr}
}

// Error returns one line.
func (e *CompletionError) Error() string {
	var b strings.Builder
	if e.Op != "" {
		fmt.Fprintf(&b, "%s #%d ", e.Op, e.Seq)
	}
	if e.Rank >= 0 {
		fmt.Fprintf(&b, "on rank %d ", e.Rank)
	}
	if e.Peer >= 0 {
		fmt.Fprintf(&b, "with rank %d ", e.Peer)
	}
	if e.Rail >= 0 {
		fmt.Fprintf(&b, "on rail %d ", e.Rail)
	}
	if e.Device != "" {
		fmt.Fprintf(&b, "(%s) ", e.Device)
	}
	fmt.Fprintf(&b, "completed with %v (%d): %s [qp %#x, wr_id %#x, vendor_err %#x]",
		e.Status, uint32(e.Status), e.Status.Meaning(), e.QPN, e.WRID, e.VendorErr)
	return b.String()
}

// Cause finds the completion that explains the failure of a batch: the first
// failure other than a flush, otherwise the first flush. failed is false if all
// succeeded.
func Cause(batch []WC) (wc WC, ok bool) {
	for _, c := range batch {
		if c.Status == StatusOK || ok && c.Status == StatusFlush {
			continue
		}
		if c.Status != StatusFlush {
			return c, true
		}
		wc, ok = c, true
	}
	return wc, ok
}
