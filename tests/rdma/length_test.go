//go:build cgo && (linux || darwin)

package rdma

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/verbs"
)

// TestStatedLengths: if header and tag of a message are right, a wrong length
// (byte_len) in its completion fails no operation; it is counted and reported at
// most once a minute. If nothing else proves a message, the operation fails.
func TestStatedLengths(t *testing.T) {
	const at0, at1 = "fault device=r0to1_0 ", "fault device=r1to0_0 "
	for _, c := range []struct {
		name, words, fault string
		text               string // of the error, "" for none
	}{
		{"other lengths", "", at0 + "on=recv do=length:77 count=all", ""},
		{"other lengths of headers only", "", at0 + "on=recv do=length:0 nth=1 count=1", ""},
		{"other lengths where messages are dropped", drops, at0 + "on=recv do=length:12288 above=4096 count=all", "bytes; expected"},
		{"no tag", "link=eth", at0 + "on=recv do=length:77 count=all", "a message of 77 bytes; expected"},
		{"a wrong tag", "profile=26.3", at1 + "on=send do=corrupt:8184 above=4096 count=all", "received message"},
		{"a wrong tag and length", "profile=26.3", at1 + "on=send do=corrupt:8184 above=4096 count=all\n" + at0 + "on=recv do=length:77 above=4096 count=all", "a message of 77 bytes; expected 8192"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := group(t, meshOf(2, 1, c.words), 2, func(_ int, o *rdma.Options, l *distributed.Link) {
				o.Tuning.Cap = -1
				if c.words == drops {
					o.Tuning.Type = verbs.UC
				}
				l.OpTimeout = 20 * time.Second
			})
			require.NoError(t, x.fabric.Script(c.fault))
			if c.text != "" {
				errs := x.each(func(g *distributed.Group) error { return checkedSum(t.Context(), g, 200_000) })
				require.ErrorIs(t, errs[0], distributed.ErrDesync)
				require.ErrorContains(t, errs[0], c.text)
				return
			}
			for range 3 {
				sums(t, x)
			}
			require.Positive(t, x.fabric.Count("fault:0"))
			told := 0
			x.mu.Lock()
			for _, line := range x.lines {
				if strings.Contains(line, "wrong length (byte_len)") {
					told++
				}
			}
			x.mu.Unlock()
			require.Equal(t, 1, told)
			notes := strings.Join(x.groups[0].Describe().Notes, "\n")
			require.Contains(t, notes, "the last from rank 1 over rail 0 (r0to1_0)")
			require.NotContains(t, strings.Join(x.groups[1].Describe().Notes, "\n"), "byte_len")
			require.Zero(t, x.fabric.Count("empty"))
		})
	}
}
