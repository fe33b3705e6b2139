package cluster

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/control"
	"ringmaster/distributed/memory"
)

// TestAbsurdHellos: numbers that no rank can have are refused by name before they
// enter a plan, and the group keeps waiting.
func TestAbsurdHellos(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *Hello)
		want   string
	}{
		"threads below zero":    {func(h *Hello) { h.Threads = -1 }, "rank 1 has -1 threads; expected 0 to 65536"},
		"threads":               {func(h *Hello) { h.Threads = math.MaxInt }, "rank 1 has 9223372036854775807 threads"},
		"memory below zero":     {func(h *Hello) { h.Memory = math.MinInt64 }, "rank 1 has -9223372036854775808 bytes of memory"},
		"memory":                {func(h *Hello) { h.Memory = math.MaxInt64 }, "bytes of memory"},
		"own memory below zero": {func(h *Hello) { h.OwnMemory = -1 }, "bytes of its own memory (--memory)"},
		"own memory":            {func(h *Hello) { h.OwnMemory = math.MaxInt64 }, "bytes of its own memory (--memory)"},
		"address":               {func(h *Hello) { h.Data = strings.Repeat("<", 4000) }, "an address of 4000 bytes"},
		"rank below zero":       {func(h *Hello) { h.Rank = math.MinInt }, "followers of a group of 2 have ranks 1 to 1"},
		"rank":                  {func(h *Hello) { h.Rank = math.MaxInt }, "followers of a group of 2 have ranks 1 to 1"},
		"size":                  {func(h *Hello) { h.Size = math.MinInt }, "world size"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newStateMachine(params{self: testHello(0, 2), peerTimeout: time.Second})
			h := testHello(1, 2)
			c.change(&h)
			m.connected(1, "10.0.0.2:4000")
			msg, err := decode(kindHello, message{Kind: kindHello, Hello: &h}.encode())
			require.NoError(t, err)
			m.receive(1, msg)
			done := m.take()
			require.Len(t, done, 3, "a line, the reason, the end of the connection: %v", done)
			require.True(t, done[0].(note).stranger, "the log has few lines for such")
			require.Equal(t, kindReject, done[1].(send).m.Kind)
			require.Contains(t, done[1].(send).m.Reason, c.want)
			require.Equal(t, hangUp{1}, done[2])
			require.Equal(t, []int{1}, m.missing())
		})
	}
}

// TestTextsOfPeersAreBounded: any text of a peer is short and printable when it
// reaches the log and the others.
func TestTextsOfPeersAreBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("<", 150<<10), strings.Repeat("\x1b[2J\n", 30<<10), strings.Repeat("é\u2028", 40<<10), strings.Repeat("\x00", 20<<10)} {
		h := testHello(1, 2)
		h.Build, h.ByteOrder, h.Model, h.Fingerprint, h.Content, h.Kernels, h.Data, h.Process = text, text, text, text, text, text, text, text
		payload, err := json.Marshal(message{Group: text, Reason: text, Addr: text, Addrs: []string{text, text}, Hello: &h})
		require.NoError(t, err)
		for k := kindHello; int(k) < len(kindNames); k++ {
			if k == kindWork || k == kindDone || k == kindReport || k == kindReportRequest || k == kindHeartbeat || k == kindExamine || k == kindExamined || k == kindAhead {
				continue // no texts
			}
			m, err := decode(k, payload)
			require.NoError(t, err)
			got := m.Hello
			for _, s := range append([]string{m.Group, m.Reason, m.Addr, got.Build, got.ByteOrder, got.Model, got.Fingerprint,
				got.Content, got.Kernels, got.Data, got.Process}, m.Addrs...) {
				require.LessOrEqual(t, len(s), mostText)
				require.NotContains(t, s, "\x1b")
				require.NotContains(t, s, "\n")
				require.NotContains(t, s, "\x00")
			}
			again, err := decode(k, m.encode())
			require.NoError(t, err)
			require.Equal(t, m, again, "what is clean stays as it is")
		}
	}
}

// raw is a connection on which a test speaks the protocol itself, as a rank that
// has joined.
func (r *rig) raw(rank int) *control.Conn {
	c, err := control.Dial(r.t.Context(), r.addr, control.Options{Key: r.key})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	hello := testHello(rank, r.size)
	m := message{Kind: kindHello, Hello: &hello}
	require.NoError(r.t, c.Send(control.Frame{Type: uint16(m.Kind), Payload: m.encode()}))
	for {
		f, err := c.Receive()
		require.NoError(r.t, err)
		if kindOf(r.t, f) == kindWelcome {
			return c
		}
	}
}

// TestALongReasonEndsNobodyElse: a rank leaves with a text that, escaped, is longer
// than a frame. The verdict that quotes it still reaches the other ranks, and their
// connections stay.
func TestALongReasonEndsNobodyElse(t *testing.T) {
	r := newRig(t, 3, nil)
	r.follow(1, nil)
	member := func(rank int) (conn int) {
		r.leader.mu.Lock()
		defer r.leader.mu.Unlock()
		if m := r.leader.sm.members[rank]; m != nil {
			return m.conn
		}
		return -1
	}
	require.Eventually(t, func() bool { return member(1) > 0 }, limit, 2*time.Millisecond)
	before := member(1)

	hostile := r.raw(2)
	// Its JSON is written by hand: the package's own would be too long for a frame.
	payload := append(append([]byte(`{"reason":"`), bytes.Repeat([]byte("<"), control.MaxFrame-100)...), `"}`...)
	require.NoError(t, hostile.Send(control.Frame{Type: uint16(kindLeave), Payload: payload}))
	require.Eventually(t, func() bool {
		_, err := r.leader.Epoch()
		return err != nil && strings.Contains(err.Error(), "<<<<")
	}, limit, 2*time.Millisecond)
	_, err := r.leader.Epoch()
	require.Less(t, len(err.Error()), 2*mostText)

	r.follow(2, nil)
	require.NoError(t, r.leader.Wait(soon(t)))
	require.NoError(t, r.do(r.running(0), "all the same"))
	require.Equal(t, before, member(1), "rank 1 had to reconnect")
}

// TestALongHello: a connection without a rank is ended before memory is allocated
// for a frame that is longer than any hello.
func TestALongHello(t *testing.T) {
	r := newRig(t, 2, nil)
	c, err := control.Dial(t.Context(), r.addr, control.Options{})
	require.NoError(t, err)
	defer c.Close()
	hello := testHello(1, 2)
	payload := message{Kind: kindHello, Hello: &hello}.encode()
	payload = append(payload, bytes.Repeat([]byte(" "), mostHello)...)
	require.NoError(t, c.Send(control.Frame{Type: uint16(kindHello), Payload: payload}))
	for {
		f, err := c.Receive()
		if err != nil {
			break
		}
		require.NotEqual(t, kindWelcome, kindOf(t, f))
	}
	r.follow(1, nil)
	require.NoError(t, r.do(r.running(0), "work"))
}

// TestStrangersGetFewLines: refused hellos do not fill the log.
func TestStrangersGetFewLines(t *testing.T) {
	var log bytes.Buffer
	r := &rig{t: t, size: 2, net: memory.NewNetwork()}
	cfg := r.config(0, "127.0.0.1:0")
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	l, err := Lead(t.Context(), cfg, &program{})
	require.NoError(t, err)
	wrong := testHello(1, 2)
	wrong.Build = "another"
	const hellos = 5000
	l.event(func() {
		for id := range hellos {
			l.sm.connected(1000+id, "10.0.0.2:4000")
			l.sm.receive(1000+id, message{Kind: kindHello, Hello: &wrong})
		}
	})
	require.NoError(t, l.Close(soon(t), "the test is over"))
	lines := strings.Count(log.String(), "rejected: build")
	require.GreaterOrEqual(t, lines, rationLines)
	require.Less(t, lines, hellos/10)
}
