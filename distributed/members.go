package distributed

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// The members of the children of a split, and their names.

// Undefined is the color of a rank that joins no child in a split.
const Undefined = -1

// Part is one child of a split.
type Part struct {
	Color   int
	Members []int // ranks of the parent, in the order of the child
}

// Members computes the children of a split from the colors [Size] and keys
// [Size] that the ranks of the parent passed. The rule is that of
// MPI_Comm_split, except that a key below 0 stands for the rank itself, as in
// MLX (collectives specification, 7.1). Ranks of one color are ordered by key,
// ties by rank; ranks of a color below 0 are in no part. The parts are ordered
// by color.
func Members(colors, keys []int) []Part {
	key := func(r int) int {
		if keys[r] < 0 {
			return r
		}
		return keys[r]
	}
	of := map[int][]int{}
	for r, c := range colors {
		if c >= 0 {
			of[c] = append(of[c], r)
		}
	}
	parts := make([]Part, 0, len(of))
	for c, members := range of {
		slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
		parts = append(parts, Part{c, members})
	}
	slices.SortFunc(parts, func(a, b Part) int { return a.Color - b.Color })
	return parts
}

// groupID returns the id of a group: SHA-256 of its name and the epoch,
// truncated to 64 bits.
func groupID(l *Link) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "group\n%d\n%s", l.Epoch, l.GroupID)
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// childID returns the id of the child of one color in the n-th split of a
// group, n from 1: SHA-256 of the three, truncated to 64 bits.
func childID(parent, n uint64, color int) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "child\n%d\n%d\n%d", parent, n, color)
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// childToken returns the secret [32] of a child: HMAC-SHA256 of its id, keyed
// with the parent's token.
func childToken(parent []byte, id uint64) []byte {
	m := hmac.New(sha256.New, parent)
	m.Write(binary.LittleEndian.AppendUint64([]byte("child"), id))
	return m.Sum(nil)
}

// child returns the link of one member of a child, with a name and a token of
// its own and the addresses of the members. report receives the child's
// suspicions, with ranks of l, -1 for no particular one.
func (l *Link) child(id uint64, rank int, members []int, report func(peer int, cause error)) Link {
	c := Link{
		Rank: rank, Size: len(members), GroupID: fmt.Sprintf("%016x", id), Epoch: l.Epoch,
		Token: childToken(l.Token, id), Addrs: make([]string, len(members)), World: make([]int, len(members)),
		OpTimeout: l.OpTimeout, VerdictTimeout: l.VerdictTimeout, Child: true,
		Suspect: func(peer int, cause error) {
			if peer >= 0 {
				peer = members[peer]
			}
			report(peer, cause)
		},
	}
	if l.Hosts != nil {
		c.Hosts = make([]string, len(members))
	}
	for i, r := range members {
		if r < len(l.Addrs) {
			c.Addrs[i] = l.Addrs[r]
		}
		if l.Hosts != nil {
			c.Hosts[i] = l.Host(r)
		}
		c.World[i] = l.world(r)
	}
	return c
}
