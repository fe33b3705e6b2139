package verbs

import (
	"fmt"
	"net/netip"
	"strings"

	"ringmaster/distributed"
)

// FindIPv4GID chooses by family: the first entry that is an IPv4 address, of the
// newer type if one address has several entries. Peers reach Apple's ports by it. The
// entry exists only if the port's own interface has an IPv4 address. It is searched
// for because its index differs from host to host.
func FindIPv4GID(entries []GIDEntry) (GIDEntry, error) {
	for _, e := range entries {
		if e.GID.IPv4Mapped() {
			return FindGID(entries, e.GID.Addr())
		}
	}
	return GIDEntry{}, gidError("no entry of the GID table is an IPv4 address", entries,
		"give the port's own interface (not the bridge) an IPv4 address")
}

// Addresses returns the entries by which peers reach a Thunderbolt port, best first:
// an IPv4 address, then a link-local IPv6 one. A port may lack either, because the
// IPv4 address appears minutes after boot or not at all, and since macOS 27 the first
// entry is a UUID and not an address. Without both the error wraps ErrNoGID.
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
			"bring up the port's own interface (not the bridge), or give it an IPv4 address; addresses may appear only minutes after boot")
	}
	return found, nil
}

// MatchGIDs chooses the addresses of a link: our first one that has the family of one
// of the peer's, because RTR demands the same family. Both ends choose the same
// family if both pass theirs in the order of Addresses.
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
	return GIDEntry{}, GID{}, gidError("no entry of the GID table has the family of one of the peer's addresses ("+strings.Join(have, ", ")+")", own,
		"give both ports an IPv4 address, or neither")
}

// FindGID chooses the entry of an interface's address. RoCE lists each address once
// for each type; v2 is preferred because it passes routers.
func FindGID(entries []GIDEntry, addr netip.Addr) (GIDEntry, error) {
	best := -1
	for i, e := range entries {
		if e.GID.Addr() == addr.Unmap().WithZone("") && (best < 0 || e.Type > entries[best].Type) {
			best = i
		}
	}
	if best < 0 {
		return GIDEntry{}, gidError(fmt.Sprintf("no entry of the GID table is %v", addr), entries,
			"give the port's interface this address, or choose one from the table")
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
