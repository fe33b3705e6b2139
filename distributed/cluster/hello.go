package cluster

import (
	"fmt"
	"strings"
)

// Hello is what a rank says about itself when it joins. A rank whose Size, Build,
// ByteOrder, Fingerprint, Content or Kernels differ from the leader's is
// rejected; both sides report the difference.
type Hello struct {
	Rank        int    `json:"rank"`
	Size        int    `json:"size"` // ranks of the group
	Build       string `json:"build"`
	ByteOrder   string `json:"byte_order"`        // "little" or "big"
	Model       string `json:"model"`             // path or name, for messages
	Fingerprint string `json:"fingerprint"`       // of the model's metadata
	Content     string `json:"content,omitempty"` // hash of the weights, with --verify-model
	Kernels     string `json:"kernels"`           // backend and instruction set, which decide the last bits of results
	Threads     int    `json:"threads"`
	Memory      int64  `json:"memory"` // bytes this rank offers, 0 if unknown
	// OwnMemory is the most bytes that this rank may use beside the mapped
	// weights, 0 if only Memory limits it.
	OwnMemory int64 `json:"own_memory,omitempty"`
	// ReadRate is how fast the rank reads the model's file, in bytes per second; 0 if
	// unknown.
	ReadRate int64  `json:"read_rate,omitempty"`
	Data     string `json:"data"` // address of its data plane, from Transport.Listen
	// Process is drawn at random when a follower starts. It tells a follower
	// that has reconnected, while the leader still holds its old connection,
	// from another process with the same rank.
	Process string `json:"process,omitempty"`
}

// mismatch lists how a rank's hello differs from the leader's where it must not,
// "" if it fits. The text names both values and the cure; both sides show it.
func mismatch(leader, h Hello) string {
	var all []string
	compare := func(what, ours, theirs, cure string) {
		if ours != theirs {
			all = append(all, fmt.Sprintf("%s: rank 0 has %s, rank %d has %s; %s", what, orNone(ours), h.Rank, orNone(theirs), cure))
		}
	}
	if h.Size != leader.Size {
		all = append(all, fmt.Sprintf("world size: rank 0 has %d, rank %d has %d; start every rank with the same --world-size", leader.Size, h.Rank, h.Size))
	}
	if h.Rank < 1 || h.Rank >= leader.Size {
		all = append(all, fmt.Sprintf("rank %d: followers of a group of %d have ranks 1 to %d; change --rank", h.Rank, leader.Size, leader.Size-1))
	}
	compare("build", leader.Build, h.Build, "install the same version on every host")
	compare("byte order", leader.ByteOrder, h.ByteOrder, "all hosts of a group need the same byte order")
	if leader.Fingerprint != h.Fingerprint {
		all = append(all, fmt.Sprintf("model: rank 0 has %s with fingerprint %s, rank %d has %s with %s; give every rank the same file",
			leader.Model, short(leader.Fingerprint), h.Rank, h.Model, short(h.Fingerprint)))
	} else {
		compare("model content", short(leader.Content), short(h.Content), "copy the file again, and use --verify-model on all ranks or on none")
	}
	compare("kernels", leader.Kernels, h.Kernels, "their results differ in the last bits: give all ranks the same --simd")
	return strings.Join(all, "; ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// short returns the beginning of a hash, enough to tell two apart by eye.
func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}
