package cluster

import (
	"fmt"
	"strings"
	"unicode"
)

// Limits of what a peer may say. They are needed because without a cluster key any
// stranger can be a peer, and because what one peer says enters the log, the
// plans, and messages for the others, which must fit their frames.
const (
	mostText    = 4096     // bytes of a text; the longest is the path of a model
	mostAddr    = 512      // bytes of an address of the data plane: 255 of them fit a frame, however they are escaped
	mostHost    = 64       // bytes of the name of a host, as many as Linux allows
	mostThreads = 1 << 16  // of a rank
	mostMemory  = 1 << 60  // bytes that a rank offers, or reads in a second
	mostHello   = 64 << 10 // bytes of the frames on a connection on which no rank has joined
)

// clean makes a peer's text safe for the log and for messages to others: printable
// characters only, at most mostText bytes.
func clean(s string) string {
	const cut = "…"
	if len(s) > mostText {
		s = strings.ToValidUTF8(s[:mostText-len(cut)], "") + cut
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// cleanHost is clean for the name of a host, which stands in most texts about its rank.
func cleanHost(s string) string {
	if s = clean(s); len(s) > mostHost {
		s = strings.ToValidUTF8(s[:mostHost], "")
	}
	return strings.TrimSpace(s)
}

// clean makes every text of a message clean.
func (m *message) clean() {
	for _, s := range []*string{&m.Group, &m.Reason, &m.Addr} {
		*s = clean(*s)
	}
	for i, a := range m.Addrs {
		m.Addrs[i] = clean(a)
	}
	m.Host = cleanHost(m.Host)
	for i, h := range m.Hosts {
		m.Hosts[i] = cleanHost(h)
	}
	for i := range m.Missing {
		u := &m.Missing[i]
		u.Addr, u.Cause = clean(u.Addr), clean(u.Cause)
	}
	if h := m.Hello; h != nil {
		h.Host = cleanHost(h.Host)
		for _, s := range []*string{&h.Build, &h.Program, &h.Platform, &h.Commit, &h.ByteOrder, &h.Model, &h.Fingerprint, &h.Weights, &h.Content, &h.Kernels, &h.Math, &h.Data, &h.Process} {
			*s = clean(*s)
		}
	}
}

// absurd names a number or address of a hello that no rank can have, "" if all are
// possible. The check is needed because plans are computed from them.
func absurd(h Hello) string {
	for _, n := range []struct {
		what      string
		have, max int64
	}{
		{"threads", int64(h.Threads), mostThreads},
		{"bytes of memory", h.Memory, mostMemory},
		{"bytes of its own memory (--memory)", h.OwnMemory, mostMemory},
		{"bytes read per second", h.ReadRate, mostMemory},
	} {
		if n.have < 0 || n.have > n.max {
			return fmt.Sprintf("%s has %d %s; expected 0 to %d", h.Name(), n.have, n.what, n.max)
		}
	}
	if len(h.Data) > mostAddr {
		return fmt.Sprintf("%s has an address of %d bytes for its data plane; at most %d are allowed", h.Name(), len(h.Data), mostAddr)
	}
	return ""
}
