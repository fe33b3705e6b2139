package cluster

import (
	"fmt"
	"strings"
)

// mismatch says in what a rank's hello does not fit the leader's, "" if it
// fits. The text names both sides and the cure: it is shown on both.
func mismatch(leader, h Hello) string {
	var all []string
	differ := func(what, ours, theirs, cure string) {
		if ours != theirs {
			all = append(all, fmt.Sprintf("%s: rank 0 has %s, rank %d has %s; %s", what, orNone(ours), h.Rank, orNone(theirs), cure))
		}
	}
	if h.Size != leader.Size {
		all = append(all, fmt.Sprintf("world size: rank 0 has %d, rank %d has %d; start all with the same --world-size", leader.Size, h.Rank, h.Size))
	}
	if h.Rank < 1 || h.Rank >= leader.Size {
		all = append(all, fmt.Sprintf("rank %d: the other ranks of a group of %d are 1 to %d; change --rank", h.Rank, leader.Size, leader.Size-1))
	}
	differ("build", leader.Build, h.Build, "install the same version everywhere")
	differ("byte order", leader.ByteOrder, h.ByteOrder, "these machines cannot form one group")
	if leader.Fingerprint != h.Fingerprint {
		all = append(all, fmt.Sprintf("model: rank 0 has %s with fingerprint %s, rank %d has %s with %s; give every rank the same file",
			leader.Model, short(leader.Fingerprint), h.Rank, h.Model, short(h.Fingerprint)))
	} else {
		differ("content of the model", short(leader.Content), short(h.Content), "copy the file again, and give --verify-model on all ranks or on none")
	}
	differ("kernels", leader.Kernels, h.Kernels, "their last bits differ: give all ranks the same --simd")
	return strings.Join(all, "; ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// short is the beginning of a hash, enough to tell two apart by eye.
func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}
