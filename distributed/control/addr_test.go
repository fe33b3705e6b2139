package control

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckListen(t *testing.T) {
	const cure = "anyone on those networks could join: give --cluster-key-file to every rank, or use one address of this host ("
	for _, c := range []struct {
		addr    string
		without string // the error without a key, "" for none
		with    string // and with one
	}{
		{"127.0.0.1:7700", "", ""},
		{"[::1]:7700", "", ""},
		{"192.168.1.10:7700", "", ""},
		{"[fe80::1%en0]:7700", "", ""},
		{"leader.local:0", "", ""},
		{":7700", cure, ""},
		{"0.0.0.0:7700", cure, ""},
		{"[::]:7700", cure, ""},
		{"[::ffff:0.0.0.0]:7700", cure, ""},
		{"", "missing port in address: give HOST:PORT, for example 192.168.1.10:7700", "same"},
		{"192.168.1.10", `address "192.168.1.10": missing port in address: give HOST:PORT`, "same"},
		{"fd00::10", `address "fd00::10" has no port: give [ADDRESS]:PORT, for example [fd00::10]:7700`, "same"},
		{"[fd00::10]", `address "[fd00::10]" has no port: give [ADDRESS]:PORT`, "same"},
		{"fd00::10:x:7700", "too many colons in address: give HOST:PORT", "same"},
		{"host:", `address "host:" has no port: give HOST:PORT, for example host:7700`, "same"},
		{"host:65536", `address "host:65536": port 65536 is out of range; ports go from 1 to 65535`, "same"},
		{"host:99999999999999999999", "is out of range", "same"},
		{"host:-1", `address "host:-1": port "-1" is not a number`, "same"},
		{"host:http", `address "host:http": port "http" is not a number; ports go from 1 to 65535`, "same"},
	} {
		for _, key := range [][]byte{nil, testKey} {
			want := c.without
			if key != nil && c.with != "same" {
				want = c.with
			}
			err := checkListen(c.addr, key)
			if want == "" {
				require.NoError(t, err, c.addr)
				continue
			}
			require.ErrorContains(t, err, want, c.addr)
			_, err = Listen(t.Context(), c.addr, key)
			require.ErrorContains(t, err, want, c.addr)
		}
	}
}

func TestListen(t *testing.T) {
	ln, err := Listen(t.Context(), "127.0.0.1:0", nil)
	require.NoError(t, err)
	defer ln.Close()

	_, err = Listen(t.Context(), ln.Addr().String(), nil)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "listen on "+ln.Addr().String())
	require.ErrorContains(t, err, "(another program is listening there, perhaps another Ringmaster: stop it, or choose another port; ")

	// An address for documentation (RFC 5737), which no host has.
	_, err = Listen(t.Context(), "192.0.2.1:7700", nil)
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	require.ErrorContains(t, err, "listen on 192.0.2.1:7700")
	require.ErrorContains(t, err, "(not an address of this host, which has ")

	all, err := Listen(t.Context(), "0.0.0.0:0", testKey)
	require.NoError(t, err)
	require.NoError(t, all.Close())
}

// TestListenByName: the address that a name resolves to counts.
func TestListenByName(t *testing.T) {
	require.NoError(t, checkListen("0:0", nil), "not known before it is looked up")
	all, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	_, err = checkBound(all, "0:0", testKey)
	require.NoError(t, err)
	_, err = checkBound(all, "0:0", nil)
	require.ErrorContains(t, err, `address "0:0" means all interfaces`)
	require.ErrorIs(t, all.Close(), net.ErrClosed)
}

func TestDialErrors(t *testing.T) {
	_, err := Dial(t.Context(), "192.168.1.10", Options{})
	require.ErrorContains(t, err, "missing port in address")
	_, err = Dial(t.Context(), "192.168.1.10:0", Options{})
	require.ErrorContains(t, err, "port 0 cannot be dialled")

	ln, err := Listen(t.Context(), "127.0.0.1:0", nil)
	require.NoError(t, err)
	addr := ln.Addr().String()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the program ends")
	cancel(why)
	_, err = Dial(ctx, addr, Options{})
	require.ErrorIs(t, err, why)
	require.NoError(t, ln.Close())

	_, err = Dial(t.Context(), addr, Options{})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorContains(t, err, "connect to "+addr)
	require.ErrorContains(t, err, "(nothing is listening there: is rank 0 running with this --coordinator? if it is, a firewall may reject it")
}

func TestDialIPv6(t *testing.T) {
	ln, err := Listen(t.Context(), "[::1]:0", nil)
	if err != nil {
		t.Skip("NOT CHECKED: no IPv6 here: ", err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			var c *Conn
			if c, err = Server(t.Context(), nc, serverOptions(nil)); err == nil {
				err = c.Close()
			}
		}
		served <- err
	}()
	c, err := Dial(t.Context(), ln.Addr().String(), clientOptions(nil))
	require.NoError(t, err)
	require.Contains(t, c.RemoteAddr().String(), "[::1]:")
	require.NoError(t, c.Close())
	require.NoError(t, <-served)
}

func TestReadKey(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	for name, text := range map[string]string{
		"plain": "0123456789abcdef", "newline": "0123456789abcdef\n", "spaces": "0123456789abcdef \t\r\n\n",
	} {
		key, err := ReadKey(file(name, text, 0o600))
		require.NoError(t, err, name)
		require.Equal(t, "0123456789abcdef", string(key))
	}
	key, err := ReadKey(file("inner", " 0123 456789\nabcdef\x00\n", 0o400))
	require.NoError(t, err)
	require.Equal(t, " 0123 456789\nabcdef\x00", string(key))
	key, err = ReadKey(file("longest", strings.Repeat("k", 4096), 0o600))
	require.NoError(t, err)
	require.Len(t, key, 4096)

	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "0 bytes; at least 16 are needed: make one with: head -c 32 /dev/urandom | base64"},
		{"short", "0123456789abcde\n", "15 bytes; at least 16 are needed"},
		{"blank", strings.Repeat(" ", 40), "0 bytes; at least 16 are needed"},
		{"long", strings.Repeat("k", 4097), "longer than 4096 bytes, so it is probably the wrong file"},
	} {
		path := file(c.name, c.text, 0o600)
		_, err := ReadKey(path)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, path)
	}
	if runtime.GOOS != "windows" {
		for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o601, 0o644} {
			path := file("open", "0123456789abcdef", mode)
			_, err := ReadKey(path)
			require.ErrorContains(t, err, "others can read or change it (mode 0"+strconv.FormatUint(uint64(mode), 8)+`); run: chmod 600 "`+path+`"`)
		}
	}
	_, err = ReadKey(dir)
	require.ErrorContains(t, err, "expected a regular file")
	_, err = ReadKey(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
