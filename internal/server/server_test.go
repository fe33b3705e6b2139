package server

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/keys"
)

// TestAllowedHosts checks that --allow-host is obeyed on every address, and that
// a server open to other hosts is recognised.
func TestAllowedHosts(t *testing.T) {
	own := []string{"localhost", "127.0.0.1", "::1"}
	for _, tt := range []struct {
		address string
		allow   []string
		want    []string
	}{
		{"127.0.0.1:1", nil, own},
		{"[::1]:1", []string{"box"}, append(own[:3:3], "box")},
		{"0.0.0.0:1", nil, nil},
		{"0.0.0.0:1", []string{"box"}, append(own[:3:3], "box")},
		{"[::]:1", []string{"box"}, append(own[:3:3], "box")},
		{"10.0.0.7:1", []string{"box"}, append(own[:3:3], "box", "10.0.0.7")},
		{"10.0.0.7:1", []string{"box", "*"}, nil},
		{"127.0.0.1:1", []string{"*"}, nil},
	} {
		addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tt.address))
		o := &Options{Hosts: tt.allow}
		require.Equal(t, tt.want, o.allowedHosts(addr), "%s %q", tt.address, tt.allow)
		require.Equal(t, !addr.IP.IsLoopback(), o.open(addr), tt.address)
		o.Keys.Given = []string{"k"}
		require.False(t, o.open(addr), tt.address)
		o.Keys = keys.Options{File: "keys"}
		require.False(t, o.open(addr), tt.address)
	}
}

// TestCheckedKeys: a key may have a comma, and no space around it.
func TestCheckedKeys(t *testing.T) {
	require.NoError(t, (&Options{Keys: keys.Options{Given: []string{"abc,def", ","}}}).check())
	for _, key := range []string{" k", "k ", "k\n", "a\x00b"} {
		require.ErrorContains(t, (&Options{Keys: keys.Options{Given: []string{"k", key}}}).check(), "key 2 has space around it or control characters")
	}
}
