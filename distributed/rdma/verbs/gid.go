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
