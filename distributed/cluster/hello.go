package cluster

import (
	"cmp"
	"fmt"
	"strings"

	"ringmaster/distributed"
)

// Hello is what a rank says about itself when it joins. The leader rejects a rank if its
// Size, program, ByteOrder, Fingerprint, Weights, Content, Kernels or Math differ from the
// leader's; both sides report the difference.
type Hello struct {
	Rank  int    `json:"rank"`
	Size  int    `json:"size"`           // ranks of the group
	Host  string `json:"host,omitempty"` // name of the host, for people
	Build string `json:"build"`          // version of the program, for people: two programs may share one
	// Program is the SHA-256 of the program's file, and Platform the system and processor
	// that it was built for. Programs for different platforms have different files, so
	// they count as the same program if both were built from the same known Commit without
	// changes.
	Program     string `json:"program,omitempty"`
	Platform    string `json:"platform,omitempty"`
	Commit      string `json:"commit,omitempty"`
	ByteOrder   string `json:"byte_order"`        // "little" or "big"
	Model       string `json:"model"`             // path or name, for messages
	Fingerprint string `json:"fingerprint"`       // of the model's metadata
	Weights     string `json:"weights,omitempty"` // hash of a sample of the weights
	Content     string `json:"content,omitempty"` // hash of all weights, with --verify-model
	Kernels     string `json:"kernels"`           // backend and instruction set, or GPU and system: they decide the last bits of results
	Math        string `json:"math,omitempty"`    // hash of what the system's mathematical functions return, likewise
	Threads     int    `json:"threads"`
	Memory      int64  `json:"memory"` // bytes this rank offers, 0 if unknown
	// OwnMemory is the most bytes that this rank may use beside the mapped
	// weights, 0 if only Memory limits it.
	OwnMemory int64 `json:"own_memory,omitempty"`
	// ReadRate is how fast the rank reads the model's file, in bytes per second; 0 if
	// unknown.
	ReadRate int64  `json:"read_rate,omitempty"`
	Data     string `json:"data"` // address of its data plane, from Transport.Listen
	// Process is random and chosen when a follower starts, so that the leader can
	// distinguish a follower that reconnects, while the leader still holds its old
	// connection, from another process with the same rank.
	Process string `json:"process,omitempty"`
}

// Name names the rank for people.
func (h Hello) Name() string { return distributed.RankName(h.Rank, h.Host) }

// mismatch lists the fields in which a rank's hello must equal the leader's and does not;
// "" if all do. The text names both values and the cure; both sides show it.
func mismatch(leader, h Hello) string {
	var all []string
	differ := func(what, ours, theirs, cure string) {
		all = append(all, fmt.Sprintf("%s: %s has %s, %s has %s; %s", what, leader.Name(), cmp.Or(ours, "none"), h.Name(), cmp.Or(theirs, "none"), cure))
	}
	compare := func(what, ours, theirs, cure string) {
		if ours != theirs {
			differ(what, ours, theirs, cure)
		}
	}
	compareHash := func(what, ours, theirs, cure string) {
		if ours != theirs {
			differ(what, short(ours), short(theirs), cure)
		}
	}
	if h.Size != leader.Size {
		all = append(all, fmt.Sprintf("world size: %s has %d, %s has %d; start every rank with the same --world-size", leader.Name(), leader.Size, h.Name(), h.Size))
	}
	if h.Rank < 1 || h.Rank >= leader.Size {
		all = append(all, fmt.Sprintf("%s: followers of a group of %d have ranks 1 to %d; change --rank", h.Name(), leader.Size, leader.Size-1))
	}
	if cure := otherProgram(leader, h); cure != "" {
		differ("build", leader.program(), h.program(), cure)
	}
	compare("byte order", leader.ByteOrder, h.ByteOrder, "all hosts of a group need the same byte order")
	if leader.Fingerprint != h.Fingerprint {
		all = append(all, fmt.Sprintf("model: %s has %s with fingerprint %s, %s has %s with %s; give every rank the same file",
			leader.Name(), leader.Model, short(leader.Fingerprint), h.Name(), h.Model, short(h.Fingerprint)))
	} else {
		compareHash("weights", leader.Weights, h.Weights, "the files have the same metadata and different weights: give every rank the same file")
		compareHash("model content", leader.Content, h.Content, "copy the file again, and use --verify-model on all ranks or on none")
	}
	compare("kernels", leader.Kernels, h.Kernels, "their results differ in the last bits: give all ranks the same --simd and --activations; Macs that compute on the GPU need the same chip and version of macOS, or --backend cpu")
	compare("mathematical functions of the C library", leader.Math, h.Math, "their results differ in the last bits: install the same release of the system (of glibc) on all hosts, or run all ranks in the same container image")
	return strings.Join(all, "; ")
}

// otherProgram returns the cure if two ranks run, or may run, different programs, else "".
func otherProgram(a, b Hello) string {
	switch {
	case a.Build != b.Build:
		return "install the same version on every host"
	case a.Platform == b.Platform && a.Program != b.Program:
		return "these are different builds of one version: copy one program file to every host (sha256sum shows the hash)"
	case a.Platform != b.Platform && (a.Commit == "" || a.Commit != b.Commit):
		return "programs for different platforms are comparable only by the commit that both were built from, without changes: build both in a clean clone, or install the archives of one release"
	}
	return ""
}

// program names the program of a rank.
func (h Hello) program() string {
	s := cmp.Or(h.Build, "none")
	if h.Program != "" {
		s += fmt.Sprintf(" for %s with hash %s", cmp.Or(h.Platform, "none"), short(h.Program))
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
