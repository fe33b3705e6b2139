package discovery

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnswers: what answers of strangers become, and that they are bounded.
func TestAnswers(t *testing.T) {
	var found []Group
	f := &finder{groups: map[string]*Group{}, found: func(g Group) { found = append(found, g) }}
	f.add([]string{"id=1a", "name=studio", "addr=10.0.0.1", "addr=fe80::1", "addr=127.0.0.1", "addr=junk", "addr=224.0.0.1", "other"}, 32324, "en1")
	want := Group{"1a", "studio", []string{"10.0.0.1:32324", "[fe80::1%en1]:32324"}}
	require.Equal(t, []Group{want}, found)
	f.add([]string{"id=1a", "name=studio", "addr=10.0.0.1"}, 32324, "en1")
	require.Len(t, found, 1, "nothing new")
	f.add([]string{"id=1a", "name=studio", "addr=10.1.0.1"}, 32324, "en2")
	require.Equal(t, append(want.Addrs, "10.1.0.1:32324"), found[1].Addrs)

	f.add([]string{"id=2b", "name=a\x1b[31m\nb", "addr=10.0.0.2"}, 1, "en1")
	require.NotContains(t, found[2].Name, "\x1b")
	require.NotContains(t, found[2].Name, "\n")
	for _, fields := range [][]string{{"name=no id", "addr=10.0.0.3"}, {"id=no name", "addr=10.0.0.3"}} {
		f.add(fields, 1, "en1")
	}
	f.add([]string{"id=3c", "name=x", "addr=10.0.0.3"}, 0, "en1")
	require.Len(t, found, 3)

	many := []string{"id=4d", "name=many"}
	for i := range 3 * mostAddresses {
		many = append(many, fmt.Sprintf("addr=10.2.0.%d", i+1))
	}
	f.add(many, 1, "en1")
	require.Len(t, f.groups["4d"].Addrs, mostAddresses)
	for i := range 2 * mostFound {
		f.add([]string{fmt.Sprint("id=", i), "name=x", "addr=10.0.0.4"}, 1, "en1")
	}
	require.Len(t, f.groups, mostFound)
}
