package pairing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/network"
	"ringmaster/internal/testenv"
)

const testLimit = time.Minute

// testDesk is a desk with the codes that it has shown. It answers each message with the same.
type testDesk struct {
	*Desk
	group Group
	key   []byte
	mu    sync.Mutex
	codes []string
	whys  []string
}

func newDesk(t *testing.T, name string) *testDesk {
	d := &testDesk{group: NewGroup(name), key: []byte("the key of the group " + name)}
	var err error
	d.Desk, err = Open(t.Context(), DeskOptions{Group: d.group, Key: d.key, Listen: "127.0.0.1:0",
		Serve: func(ctx context.Context, c *Conn) {
			for {
				kind, payload, err := c.Receive(ctx, testLimit)
				if err != nil || c.SendBytes(kind, payload) != nil {
					return
				}
			}
		},
		Code: func(code, why string) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.codes, d.whys = append(d.codes, code), append(d.whys, why)
		}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// code is the code that the desk shows now.
func (d *testDesk) code() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.codes[len(d.codes)-1]
}

func (d *testDesk) dial(t *testing.T, proof Proof) (*Conn, error) {
	c, _, err := Dial(testenv.Within(t, testLimit), d.Addr().String(), "", proof)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

// another is a code that differs from one.
func another(code string) string {
	for {
		if c := NewCode(); c != code {
			return c
		}
	}
}

// requireTalk requires that both sides can talk.
func requireTalk(t *testing.T, c *Conn) {
	t.Helper()
	require.NoError(t, c.Send(7, "hello"))
	kind, payload, err := c.Receive(testenv.Within(t, testLimit), testLimit)
	require.NoError(t, err)
	text, err := Read[string](payload)
	require.NoError(t, err)
	require.Equal(t, uint16(7), kind)
	require.Equal(t, "hello", text)
}

// TestPairing: the code and the key admit a host, as people write a code too; another code,
// another key and a code of another group do not.
func TestPairing(t *testing.T) {
	one, two := newDesk(t, "one"), newDesk(t, "two")
	for _, code := range []string{one.code(), " " + string(plainCode(one.code())) + "\n"} {
		c, err := one.dial(t, Proof{Code: code})
		require.NoError(t, err)
		require.True(t, c.ByCode)
		requireTalk(t, c)
	}
	c, err := one.dial(t, Proof{Key: one.key})
	require.NoError(t, err)
	require.False(t, c.ByCode)
	requireTalk(t, c)

	_, err = one.dial(t, Proof{Code: another(one.code())})
	require.ErrorIs(t, err, ErrCode)
	require.ErrorContains(t, err, one.group.Fingerprint())
	_, err = two.dial(t, Proof{Code: one.code()})
	require.ErrorIs(t, err, ErrCode, "a code of another group")
	_, err = two.dial(t, Proof{Key: one.key})
	require.ErrorContains(t, err, "no longer knows this host")
	_, g, err := Dial(testenv.Within(t, testLimit), two.Addr().String(), one.group.ID, Proof{Code: one.code()})
	require.ErrorContains(t, err, "not the one that was meant")
	require.Equal(t, two.group, g)
	g, err = Identify(testenv.Within(t, testLimit), one.Addr().String())
	require.NoError(t, err)
	require.Equal(t, one.group, g)
}

// TestCodeIsReplaced: after as many wrong codes as a desk allows, from many addresses, another
// code is shown and the one before is wrong. One address is refused sooner.
func TestCodeIsReplaced(t *testing.T) {
	d := newDesk(t, "one")
	first := d.code()
	for range addressAt {
		_, err := d.dial(t, Proof{Code: another(first)})
		require.ErrorIs(t, err, ErrCode)
	}
	_, err := d.dial(t, Proof{Code: first})
	var refused *RefusedError
	require.ErrorAs(t, err, &refused, "even with the right code, so that a guess learns nothing")
	require.Contains(t, refused.Reason, "from this address: try again in 20s")
	c, err := d.dial(t, Proof{Key: d.key})
	require.NoError(t, err, "a host that the group knows is not refused")
	requireTalk(t, c)

	d.limits.mu.Lock()
	d.limits.wrong = mostWrong - 1
	clear(d.limits.from)
	d.limits.mu.Unlock()
	_, err = d.dial(t, Proof{Code: another(first)})
	require.ErrorIs(t, err, ErrCode)
	require.Eventually(t, func() bool { return d.code() != first }, testLimit, time.Millisecond)
	require.Contains(t, d.whys[1], "10 wrong codes were tried, the last from 127.0.0.1:")
	_, err = d.dial(t, Proof{Code: first})
	require.ErrorIs(t, err, ErrCode)
	c, err = d.dial(t, Proof{Code: d.code()})
	require.NoError(t, err)
	requireTalk(t, c)
}

// recorder passes a connection on and keeps what the host sent.
func recorder(t *testing.T, to string) (addr string, sent *bytes.Buffer, done chan struct{}) {
	ln, err := network.Listen(t.Context(), "127.0.0.1:0", net.KeepAliveConfig{}, nil)
	require.NoError(t, err)
	sent, done = &bytes.Buffer{}, make(chan struct{})
	go func() {
		defer close(done)
		defer ln.Close()
		host, err := ln.Accept()
		if err != nil {
			return
		}
		defer host.Close()
		desk, err := network.Dialer().Dial("tcp", to)
		if err != nil {
			return
		}
		go func() {
			defer host.Close()
			io.Copy(host, desk)
		}()
		io.Copy(io.MultiWriter(desk, sent), host)
		desk.Close()
	}()
	return ln.Addr().String(), sent, done
}

// TestReplay: what a host sent is worth nothing when it is sent again, and nothing that a
// network sees has the code, the key or what was said in it.
func TestReplay(t *testing.T) {
	d := newDesk(t, "one")
	for name, proof := range map[string]Proof{"code": {Code: d.code()}, "key": {Key: d.key}} {
		t.Run(name, func(t *testing.T) {
			addr, sent, done := recorder(t, d.Addr().String())
			c, _, err := Dial(testenv.Within(t, testLimit), addr, "", proof)
			require.NoError(t, err)
			requireTalk(t, c)
			c.Close()
			<-done
			for _, secret := range [][]byte{d.key, []byte(d.code()), plainCode(d.code()), []byte("hello")} {
				require.NotContains(t, sent.String(), string(secret))
			}
			nc, err := network.Dialer().Dial("tcp", d.Addr().String())
			require.NoError(t, err)
			defer nc.Close()
			require.NoError(t, nc.SetDeadline(time.Now().Add(testLimit)))
			_, err = nc.Write(sent.Bytes())
			require.NoError(t, err)
			answer, err := io.ReadAll(nc) // the desk closes it
			if err != nil {
				require.False(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
			}
			require.NotContains(t, string(answer), "hello")
			again, err := d.dial(t, Proof{Key: d.key})
			require.NoError(t, err)
			requireTalk(t, again)
		})
	}
}

// TestStrangers: what a stranger sends in place of a greeting or a point ends its connection
// alone, and one that only asks learns what is announced anyway.
func TestStrangers(t *testing.T) {
	d := newDesk(t, "one")
	for name, text := range map[string]string{
		"another protocol":    "GET / HTTP/1.1\r\n\r\n",
		"another way":         magic + "\x09",
		"a point off a curve": magic + "\x01" + string(make([]byte, pointSize)),
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := network.Dialer().Dial("tcp", d.Addr().String())
			require.NoError(t, err)
			defer nc.Close()
			require.NoError(t, nc.SetDeadline(time.Now().Add(testLimit)))
			_, err = nc.Write([]byte(text))
			require.NoError(t, err)
			answer, _ := io.ReadAll(nc) // until the desk closes it
			require.LessOrEqual(t, len(answer), 1+idSize+1+len(d.group.Name))
			require.NotContains(t, string(answer), string(d.key))
		})
	}
	c, err := d.dial(t, Proof{Code: d.code()})
	require.NoError(t, err)
	requireTalk(t, c)
}

// TestWrongDesk: a host that reaches another program, or one that pretends to be the group,
// gets an error.
func TestWrongDesk(t *testing.T) {
	ln, err := network.Listen(t.Context(), "127.0.0.1:0", net.KeepAliveConfig{}, nil)
	require.NoError(t, err)
	defer ln.Close()
	answers := make(chan []byte, 1)
	go func() {
		for answer := range answers {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(answer)
			_, _ = io.CopyN(io.Discard, c, int64(len(magic)+1))
			c.Close()
		}
	}()
	g := NewGroup("one")
	id := bytesOf(t, g.ID)
	for _, c := range []struct {
		answer []byte
		says   string
	}{
		{[]byte("HTTP/1.1 400\r\n"), "check the port"},
		{nil, "no answer as from 'ringmaster up'"},
		{append([]byte{refused}, short("come\x1b[2J later")...), "refused: come"},
		{append(append([]byte{welcomed}, id...), short("")...), "no name"},
		{append(append(append([]byte{welcomed}, id...), short("one")...), make([]byte, pointSize)...), errPoint.Error()},
	} {
		answers <- c.answer
		_, _, err := Dial(testenv.Within(t, testLimit), ln.Addr().String(), "", Proof{Code: "4KQ-M2X"})
		require.ErrorContains(t, err, c.says)
		require.NotContains(t, err.Error(), "\x1b")
	}
	close(answers)
}

// TestCodes: codes are well formed and differ; what people write as one is one.
func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		c := NewCode()
		require.True(t, WellFormed(c), c)
		seen[c] = true
	}
	require.Greater(t, len(seen), 990)
	require.True(t, WellFormed("4kqm2x"))
	for _, bad := range []string{"", "4KQ-M2", "4KQ-M2XX", "4KQ-M21", "4KQ-MOX", "4KQ-M2é"} {
		require.False(t, WellFormed(bad), bad)
	}
}
