package verbs

import (
	"fmt"
	"net/netip"
	"strings"

	"ringmaster/distributed"
)

// FindIPv4GID chooses by family: the first entry that is an IPv4 address, of
// the newer type where there are several of one address. That is what Apple's
// ports are reached by; the entry exists only when the port's own interface has
// an IPv4 address. The index differs from host to host, so it is never
// assumed.
func FindIPv4GID(entries []GIDEntry) (GIDEntry, error) {
	for _, e := range entries {
		if e.GID.IPv4Mapped() {
			return FindGID(entries, e.GID.Addr())
		}
	}
	return GIDEntry{}, gidError("no entry of the GID table is an IPv4 address", entries,
		"give the port's own interface (not the bridge) an IPv4 address")
}

// Addresses are the entries by which a Thunderbolt port is reached, best first:
// an IPv4 address, then a link-local IPv6 one. A port need not have both: the IPv4
// address comes minutes after boot or not at all, and from macOS 27 on the first
// entry is a UUID, which is no address. Without either the error wraps ErrNoGID.
func Addresses(entries []GIDEntry) ([]GIDEntry, error) {
	var found []GIDEntry
	if e, err := FindIPv4GID(entries); err == nil {
		found = append(found, e)
	}
	for _, e := range entries {
		if e.GID.LinkLocal() {
			found = append(found, e)
			break
		}
	}
	if len(found) == 0 {
		return nil, gidError("no entry of the GID table is an IPv4 address or a link-local IPv6 one", entries,
			"take the port's own interface (not the bridge) up, or give it an IPv4 address; addresses may appear only minutes after boot")
	}
	return found, nil
}

// MatchGIDs chooses the addresses of a link: the first of ours with one of the peer's
// of the same family, as RTR demands. Both ends choose the same family if both
// give theirs in the order of Addresses.
func MatchGIDs(own []GIDEntry, peer []GID) (GIDEntry, GID, error) {
	for _, e := range own {
		for _, g := range peer {
			if e.GID.IPv4Mapped() == g.IPv4Mapped() {
				return e, g, nil
			}
		}
	}
	have := make([]string, len(peer))
	for i, g := range peer {
		have[i] = g.String()
	}
	return GIDEntry{}, GID{}, gidError("no entry of the GID table is of the family of one of the peer's addresses ("+strings.Join(have, ", ")+")", own,
		"give both ports an IPv4 address, or neither")
}

// FindGID chooses the entry of an interface's address. RoCE lists each address
// once for each type: v2 is preferred, for it passes routers.
func FindGID(entries []GIDEntry, addr netip.Addr) (GIDEntry, error) {
	best := -1
	for i, e := range entries {
		if e.GID.Addr() == addr.Unmap().WithZone("") && (best < 0 || e.Type > entries[best].Type) {
			best = i
		}
	}
	if best < 0 {
		return GIDEntry{}, gidError(fmt.Sprintf("no entry of the GID table is %v", addr), entries,
			"give the port's interface this address, or choose one of the table")
	}
	return entries[best], nil
}

func gidError(what string, entries []GIDEntry, cure string) error {
	have := make([]string, len(entries))
	for i, e := range entries {
		have[i] = fmt.Sprintf("%d: %v (%v)", e.Index, e.GID, e.Type)
	}
	if len(have) == 0 {
		have = []string{"nothing"}
	}
	return fmt.Errorf("%w: %w: %s; it holds %s; %s", distributed.ErrUnavailable, ErrNoGID, what, strings.Join(have, ", "), cure)
}
