//go:build cgo && (linux || darwin)

package fakeverbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

// exchange posts n receives on b and n sends on a.
func exchange(t testing.TB, a, b *end, n int) {
	t.Helper()
	for i := range n {
		b.recv(t, uint64(100+i), i*4096, 4096)
	}
	for i := range n {
		a.send(t, uint64(200+i), i*4096, 4096)
	}
}

// statusOf collects the status of each completed request.
func statusOf(t testing.TB, e *end, n int) map[uint64]verbs.Status {
	t.Helper()
	m := map[uint64]verbs.Status{}
	for _, wc := range wait(t, e, n) {
		m[wc.ID] = wc.Status
	}
	return m
}

// TestStatuses: every status is reported by its name, on either side, and the
// requests behind it are flushed.
func TestStatuses(t *testing.T) {
	for s := verbs.Status(1); int(s) <= verbs.Statuses; s++ {
		t.Run(s.String(), func(t *testing.T) {
			_, a, b := link(t, tbPair+fmt.Sprintf("fault device=a on=send nth=2 do=status:%d vendor=0x77\n", s), verbs.UC, 8)
			exchange(t, a, b, 3)
			wcs := wait(t, a, 3)
			require.Equal(t, verbs.StatusOK, wcs[0].Status)
			cause, ok := verbs.Cause(wcs)
			require.True(t, ok)
			require.Equal(t, verbs.WC{ID: 201, Status: s, VendorErr: 0x77, QPN: a.qp.Num()},
				verbs.WC{ID: cause.ID, Status: cause.Status, VendorErr: cause.VendorErr, QPN: cause.QPN})
			require.Equal(t, verbs.StatusFlush, wcs[2].Status)
			err := verbs.NewCompletionError(cause)
			require.ErrorContains(t, err, s.String())
			require.ErrorContains(t, err, "vendor_err 0x77")
			_, state, e := a.qp.Query()
			require.NoError(t, e)
			require.Equal(t, verbs.StateErr, state)

			_, a, b = link(t, tbPair+fmt.Sprintf("fault device=b on=recv nth=2 do=status:%d\n", s), verbs.UC, 8)
			exchange(t, a, b, 3)
			require.Equal(t, map[uint64]verbs.Status{100: 0, 101: s, 102: verbs.StatusFlush}, statusOf(t, b, 3))
		})
	}
}

// TestFlushFirst: the flushes of one queue pair complete ahead of their cause.
func TestFlushFirst(t *testing.T) {
	_, a, b := link(t, tbPair+"fault device=a on=send nth=2 do=status:12 flush_first=1\n", verbs.UC, 8)
	for i := range 3 {
		b.recv(t, uint64(i), 0, 4096)
	}
	_, err := a.qp.PostSend(a.mr.Request(1, 0, 4096), a.mr.Request(2, 0, 4096), a.mr.Request(3, 0, 4096))
	require.NoError(t, err)
	wcs := wait(t, a, 3)
	require.Equal(t, []verbs.Status{0, 5, 12}, []verbs.Status{wcs[0].Status, wcs[1].Status, wcs[2].Status})
	cause, _ := verbs.Cause(wcs)
	require.EqualValues(t, 2, cause.ID)
}

func TestMessagesLostAndTwice(t *testing.T) {
	t.Run("drop", func(t *testing.T) {
		f, a, b := link(t, tbPair+"fault device=a on=send nth=2 do=drop\n", verbs.UC, 8)
		exchange(t, a, b, 3)
		require.Equal(t, map[uint64]verbs.Status{200: 0, 201: 0, 202: 0}, statusOf(t, a, 3))
		require.Equal(t, map[uint64]verbs.Status{100: 0, 101: 0}, statusOf(t, b, 2)) // the third took the second's place
		none(t, b)
		require.Equal(t, 1, f.Count("lost"))
		require.Equal(t, 1, f.Count("fault:0"))
	})
	t.Run("swallow send", func(t *testing.T) {
		_, a, b := link(t, tbPair+"fault device=a on=send nth=2 do=swallow\n", verbs.UC, 8)
		exchange(t, a, b, 3)
		require.Equal(t, map[uint64]verbs.Status{200: 0, 202: 0}, statusOf(t, a, 2))
		require.Len(t, wait(t, b, 3), 3)
		none(t, a)
	})
	t.Run("swallow recv", func(t *testing.T) {
		_, a, b := link(t, tbPair+"fault device=b on=recv nth=1 do=swallow\n", verbs.UC, 8)
		exchange(t, a, b, 2)
		require.Equal(t, map[uint64]verbs.Status{101: 0}, statusOf(t, b, 1))
		require.Len(t, wait(t, a, 2), 2)
		none(t, b)
	})
	for _, c := range []struct{ name, fault string }{{"dup send", "device=a on=send"}, {"dup recv", "device=b on=recv"}} {
		t.Run(c.name, func(t *testing.T) {
			_, a, b := link(t, tbPair+"fault "+c.fault+" nth=2 do=dup\n", verbs.UC, 8)
			exchange(t, a, b, 3)
			e, first := a, uint64(200)
			if c.name == "dup recv" {
				e, first = b, 100
			}
			var ids []uint64
			for _, wc := range wait(t, e, 4) {
				ids = append(ids, wc.ID)
			}
			require.Equal(t, []uint64{first, first + 1, first + 1, first + 2}, ids)
		})
	}
	t.Run("corrupt", func(t *testing.T) {
		for _, where := range []string{"device=a on=send", "device=b on=recv"} {
			_, a, b := link(t, tbPair+"fault "+where+" do=corrupt:1000\n", verbs.UC, 8)
			exchange(t, a, b, 1)
			require.Equal(t, verbs.StatusOK, wait(t, b, 1)[0].Status)
			require.Equal(t, a.mr.Bytes()[1000]^0x40, b.mr.Bytes()[1000])
			require.Equal(t, a.mr.Bytes()[:1000], b.mr.Bytes()[:1000])
		}
	})
}

// TestOrder: a delayed message arrives late, messages behind it on the same
// queue pair stay behind it, and another rail overtakes.
func TestOrder(t *testing.T) {
	const rails = "device a host=0\ndevice b host=1\ndevice c host=0\ndevice d host=1\ncable a b\ncable c d\n"
	for _, fault := range []string{"fault device=a on=send do=hold:2\n", "fault device=a on=send do=delay:3000\n", "fault device=b on=recv do=delay:3000\n"} {
		t.Run(fault, func(t *testing.T) {
			f := New(t, rails+fault)
			lib := openLibrary(t, f)
			a, b := openEnd(t, lib, "a", verbs.UC, 8), openEnd(t, lib, "b", verbs.UC, 8)
			c, d := openEnd(t, lib, "c", verbs.UC, 8), openEnd(t, lib, "d", verbs.UC, 8)
			join(t, a, b)
			join(t, c, d)
			begin := time.Now()
			exchange(t, a, b, 2)
			if strings.Contains(fault, "hold") {
				none(t, b) // until the other rail has overtaken
			}
			exchange(t, c, d, 2)
			require.Len(t, wait(t, d, 2), 2)
			wcs := wait(t, b, 2)
			if strings.Contains(fault, "delay") {
				require.GreaterOrEqual(t, time.Since(begin), 3*time.Millisecond)
			}
			require.EqualValues(t, []uint64{100, 101}, []uint64{wcs[0].ID, wcs[1].ID})
			require.Len(t, wait(t, a, 2), 2)
		})
	}
}

func TestPolls(t *testing.T) {
	for _, c := range []struct {
		fault  string
		result int
	}{{"on=poll do=negative:-7", -7}, {"on=poll do=negative", -1}, {"on=poll do=more:2", 6}, {"on=poll do=overrun", -1}, {"on=poll_any do=negative:-5", -5}} {
		t.Run(c.fault, func(t *testing.T) {
			_, a, b := link(t, tbPair+"fault device=a "+c.fault+"\n", verbs.UC, 8)
			exchange(t, a, b, 1)
			_, err := a.cq.Poll(make([]verbs.WC, 4))
			var pe *verbs.PollError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, verbs.PollError{Device: "a", Result: c.result, Asked: 4}, *pe)
		})
	}
	t.Run("overrun", func(t *testing.T) {
		_, a, b := apart(t, tbPair, verbs.UC, 8)
		small, err := b.ctx.CreateCQ(2)
		require.NoError(t, err)
		require.NoError(t, b.qp.Destroy())
		b.qp, err = b.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: small, RecvCQ: small, Caps: verbs.Caps{SendWR: 8, RecvWR: 8}})
		require.NoError(t, err)
		b.cq = small
		join(t, a, b)
		exchange(t, a, b, 3)
		_, err = b.cq.Poll(make([]verbs.WC, 4))
		require.ErrorContains(t, err, "returned -1")
	})
}

func TestPosts(t *testing.T) {
	for _, c := range []struct{ errno, want int }{{-12, 12}, {12, 12}, {22, 22}} {
		for _, call := range []string{"post_send", "post_recv"} {
			t.Run(fmt.Sprint(call, c.errno), func(t *testing.T) {
				_, a, b := link(t, tbPair+fmt.Sprintf("fault device=a on=%s do=errno:%d accept=2\n", call, c.errno), verbs.UC, 8)
				reqs := []verbs.Request{a.mr.Request(1, 0, 64), a.mr.Request(2, 64, 64), a.mr.Request(3, 128, 64)}
				for i := range 3 {
					b.recv(t, uint64(i), 0, 64)
				}
				post := a.qp.PostSend
				if call == "post_recv" {
					post = a.qp.PostRecv
				}
				n, err := post(reqs...)
				require.Equal(t, 2, n)
				var pe *verbs.PostError
				require.ErrorAs(t, err, &pe)
				require.Equal(t, verbs.PostError{Call: call, Device: "a", QPN: a.qp.Num(), Posted: 2, Asked: 3, Errno: syscall.Errno(c.want)}, *pe)
				if call == "post_recv" {
					b.send(t, 9, 0, 64)
					b.send(t, 9, 0, 64)
				}
				require.Equal(t, map[uint64]verbs.Status{1: 0, 2: 0}, statusOf(t, a, 2))
				none(t, a)
			})
		}
	}
}

// TestDepth: the depth counts frames, is freed when a completion is polled, and
// the granted depth may differ from the requested one.
func TestDepth(t *testing.T) {
	_, a, b := link(t, "device a grant_recv=asked\ndevice b host=1\ncable a b\n", verbs.UC, 8)
	for i := range 4 {
		a.recv(t, uint64(i), i*8192, 8192) // two frames each
	}
	_, err := a.qp.PostRecv(a.mr.Request(9, 0, 1))
	require.ErrorIs(t, err, syscall.ENOMEM)
	b.send(t, 1, 0, 8192)
	_, err = a.qp.PostRecv(a.mr.Request(9, 0, 1))
	require.ErrorIs(t, err, syscall.ENOMEM, "the completion was not polled")
	wait(t, a, 1)
	a.recv(t, 9, 0, 1)

	for grant, want := range map[string]int{"grant_send=3 grant_recv=3": 3, "grant_send=99 grant_recv=99": 99, "grant_send=round grant_recv=round": 1023} {
		_, a, _ := link(t, "device a "+grant+"\ndevice b host=1\ncable a b\n", verbs.UC, 256)
		require.Equal(t, verbs.Caps{SendWR: want, RecvWR: want}, a.qp.Granted())
	}

	_, a, b = link(t, "device a silent_depth=1 grant_recv=asked\ndevice b host=1\ncable a b\n", verbs.UC, 2)
	for i := range 3 {
		a.recv(t, uint64(i), 0, 64)
	}
	b.send(t, 1, 0, 64)
	b.send(t, 1, 0, 64)
	wait(t, b, 2)
	b.send(t, 1, 0, 64)
	require.Equal(t, map[uint64]verbs.Status{0: 0, 1: 0, 2: verbs.StatusLocLen}, statusOf(t, a, 3))
}

// TestFrames: on Thunderbolt both sides must have the same number of frames;
// elsewhere the receive must only be long enough.
func TestFrames(t *testing.T) {
	_, a, b := link(t, tbPair, verbs.UC, 8)
	b.recv(t, 1, 0, 8192)
	a.send(t, 2, 0, 4096)
	require.Equal(t, verbs.StatusLocLen, wait(t, b, 1)[0].Status)
	require.Equal(t, verbs.StatusOK, wait(t, a, 1)[0].Status)

	_, a, b = link(t, "device a\ndevice b host=1 mismatch=both\ncable a b\n", verbs.UC, 8)
	b.recv(t, 1, 0, 8192)
	a.send(t, 2, 0, 4096)
	require.Equal(t, verbs.StatusLocLen, wait(t, b, 1)[0].Status)
	require.Equal(t, verbs.StatusRemInv, wait(t, a, 1)[0].Status)

	_, a, b = link(t, ibPair, verbs.RC, 8)
	b.recv(t, 1, 0, 8192)
	b.recv(t, 2, 0, 64)
	a.send(t, 3, 0, 4096)
	require.EqualValues(t, 4096, wait(t, b, 1)[0].ByteLen)
	a.send(t, 4, 0, 65)
	require.Equal(t, verbs.StatusLocLen, wait(t, b, 1)[0].Status)
	require.Equal(t, map[uint64]verbs.Status{3: 0, 4: verbs.StatusRemInv}, statusOf(t, a, 2))
}

func TestMemoryIsChecked(t *testing.T) {
	_, a, b := link(t, tbPair, verbs.UC, 8)
	b.recv(t, 1, 0, 64)
	bad := a.mr.Request(2, room-64, 64)
	bad.Addr += 1
	_, err := a.qp.PostSend(bad)
	require.NoError(t, err)
	require.Equal(t, verbs.StatusLocProt, wait(t, a, 1)[0].Status)

	_, a, b = link(t, tbPair, verbs.UC, 8)
	b.recv(t, 1, 0, 64)
	require.NoError(t, b.mr.Close()) // the registration ends while a receive is posted
	a.send(t, 2, 0, 64)
	require.Equal(t, verbs.StatusLocProt, wait(t, b, 1)[0].Status)
}

// TestNoReceive: what happens to a message for which no receive is posted.
func TestNoReceive(t *testing.T) {
	script := func(policy string) string {
		return "device a link=ib norecv=" + policy + "\ndevice b host=1 link=ib norecv=" + policy + "\nswitch a b\n"
	}
	t.Run("hold", func(t *testing.T) {
		_, a, b := link(t, script("hold"), verbs.UC, 8)
		a.send(t, 1, 0, 64)
		none(t, a)
		b.recv(t, 2, 0, 64)
		require.EqualValues(t, 2, wait(t, b, 1)[0].ID)
		wait(t, a, 1)
	})
	t.Run("drop", func(t *testing.T) {
		f, a, b := link(t, script("drop"), verbs.UC, 8)
		a.send(t, 1, 0, 64)
		require.Equal(t, verbs.StatusOK, wait(t, a, 1)[0].Status)
		b.recv(t, 2, 0, 64)
		none(t, b)
		a.send(t, 3, 0, 64)
		wait(t, b, 1)
		require.Equal(t, 1, f.Count("lost"))
	})
	t.Run("kill", func(t *testing.T) {
		_, a, b := link(t, script("kill"), verbs.UC, 8)
		a.send(t, 1, 0, 64)
		b.recv(t, 2, 0, 64)
		a.send(t, 3, 0, 64)
		none(t, b) // that direction is dead
		a.recv(t, 4, 0, 64)
		b.send(t, 5, 0, 64)
		wait(t, b, 1) // the other direction is not
	})
	t.Run("rnr", func(t *testing.T) {
		_, a, b := apart(t, script("rnr"), verbs.RC, 8)
		require.NoError(t, a.qp.Init(1))
		require.NoError(t, b.qp.Init(1))
		require.NoError(t, a.qp.RTR(routeTo(t, a, b)))
		require.NoError(t, b.qp.RTR(routeTo(t, b, a)))
		require.NoError(t, a.qp.RTS(7, verbs.Retries{Timeout: 14, Retry: 7, RNR: 1}))
		a.send(t, 1, 0, 64)
		require.Equal(t, verbs.StatusRNRExc, wait(t, a, 1)[0].Status)
	})
	t.Run("rnr without limit", func(t *testing.T) {
		_, a, b := link(t, script("rnr"), verbs.RC, 8)
		a.send(t, 1, 0, 64)
		none(t, a)
		b.recv(t, 2, 0, 64)
		require.Equal(t, verbs.StatusOK, wait(t, a, 1)[0].Status)
		wait(t, b, 1)
	})
}

// TestDeath: a rail, a port, a direction and a host die; UC reports nothing, RC
// reports it after its retries.
func TestDeath(t *testing.T) {
	for _, how := range []string{"kill_rail", "kill_direction", "kill_host", "port_down"} {
		t.Run("UC "+how, func(t *testing.T) {
			f, a, b := link(t, tbPair+"fault device=a on=send nth=2 do="+how+"\n", verbs.UC, 8)
			exchange(t, a, b, 3)
			require.Len(t, wait(t, b, 1), 1)
			none(t, b)
			if how != "kill_host" {
				require.Len(t, wait(t, a, 1), 1)
			}
			none(t, a)
			require.Equal(t, 1, f.Count("messages"))
		})
	}
	for _, how := range []string{"kill_rail", "kill_direction", "port_down"} {
		t.Run("RC "+how, func(t *testing.T) {
			_, a, b := link(t, "device a link=eth\ndevice b host=1 link=eth\ncable a b\nfault device=a on=send nth=2 do="+how+"\n", verbs.RC, 8)
			exchange(t, a, b, 3)
			require.Equal(t, map[uint64]verbs.Status{200: 0, 201: verbs.StatusRetryExc, 202: verbs.StatusFlush}, statusOf(t, a, 3))
		})
	}
	t.Run("RC peer dies", func(t *testing.T) {
		f, a, b := link(t, ibPair, verbs.RC, 8)
		exchange(t, a, b, 1)
		wait(t, a, 1)
		require.NoError(t, f.Script("host 1 dead\n"))
		a.send(t, 1, 0, 64)
		require.Equal(t, verbs.StatusRetryExc, wait(t, a, 1)[0].Status)
		none(t, b)
	})
	t.Run("RC peer is destroyed", func(t *testing.T) {
		_, a, b := link(t, ibPair, verbs.RC, 8)
		a.send(t, 1, 0, 64)
		require.NoError(t, b.qp.Destroy())
		require.Equal(t, verbs.StatusRetryExc, wait(t, a, 1)[0].Status)
	})
	t.Run("host stops and resumes", func(t *testing.T) {
		f, a, b := link(t, tbPair, verbs.UC, 8)
		require.NoError(t, f.Script("host 1 stopped\n"))
		a.send(t, 1, 0, 64)
		b.recv(t, 2, 0, 64)
		none(t, b)
		require.NoError(t, f.Script("host 1 alive\n"))
		require.EqualValues(t, 2, wait(t, b, 1)[0].ID)
		wait(t, a, 1)
	})
	t.Run("cable out and in", func(t *testing.T) {
		f, a, b := link(t, tbPair, verbs.UC, 8)
		require.NoError(t, f.Script("cable a b dead\n"))
		exchange(t, a, b, 1)
		none(t, b)
		require.NoError(t, f.Script("cable a b alive\n"))
		require.Len(t, wait(t, b, 1), 1)
	})
}

// TestTime: a message takes at least its latency and the time for its bytes,
// and two rails move the same bytes in half the time.
func TestTime(t *testing.T) {
	_, a, b := link(t, "device a mbps=1000\ndevice b host=1\ncable a b latency_ns=2000000\n", verbs.UC, 64)
	begin := time.Now()
	for i := range 10 {
		b.recv(t, uint64(i), 0, 16384)
		a.send(t, uint64(i), 0, 16384)
	}
	wait(t, b, 10)
	require.GreaterOrEqual(t, time.Since(begin), 2*time.Millisecond+10*16384*time.Nanosecond)
	wait(t, a, 10)
}

// TestChance: a fault with a probability fires as often as it should, and at
// the same events for the same seed.
func TestChance(t *testing.T) {
	lost := func(seed int) (ids []uint64) {
		_, a, b := link(t, tbPair+fmt.Sprintf("fault device=a on=send prob=2500 seed=%d count=all do=swallow\n", seed), verbs.UC, 256)
		for i := range 200 {
			b.recv(t, 0, 0, 64)
			a.send(t, uint64(i), 0, 64)
		}
		wait(t, b, 200)
		for n := 0; n == 0 || len(ids) > n; {
			n = len(ids)
			buf := make([]verbs.WC, 200)
			k, err := a.cq.Poll(buf)
			require.NoError(t, err)
			for _, wc := range buf[:k] {
				ids = append(ids, wc.ID)
			}
		}
		return ids
	}
	first := lost(1)
	require.Equal(t, first, lost(1))
	require.NotEqual(t, first, lost(2))
	require.InDelta(t, 150, len(first), 30)
}

func TestScriptErrors(t *testing.T) {
	for script, want := range map[string]string{
		"device a\ndevice a\n": "line 2: device a of host 0 is there already",
		"device a sped=1\n":    "line 1: unknown or misspelt: sped=1",
		"device a mbps=fast\n": "mbps=fast",
		"cable a b\n":          "no device a",
		"device a\ndevice b\ndevice c\ncable a b\ncable a c": "line 5: a port has one cable",
		"device a\nfault on=send do=explode\n":               "no action explode",
		"device a\nfault on=recv do=drop\n":                  "recv cannot do drop",
		"device a\nfault do=drop\n":                          "on=EVENT",
		"hello\n":                                            "unknown statement hello",
		"device a norecv=perhaps\n":                          "norecv is",
	} {
		_, err := Make(t.TempDir(), script)
		require.ErrorContains(t, err, want, script)
	}
}

// kindOf checks the kind of an error and that it contains all of what.
func kindOf(t testing.TB, err, kind error, what ...string) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	for _, w := range what {
		require.ErrorContains(t, err, w)
	}
	var ce *verbs.CallError
	require.True(t, errors.As(err, &ce))
	require.NotEmpty(t, ce.Cure)
}

// TestCalls: every call that a script makes fail reports which call, device and
// errno it was, and what to do.
func TestCalls(t *testing.T) {
	boot, none := distributed.ErrBootstrap, distributed.ErrUnavailable
	for _, c := range []struct {
		fault string
		kind  error
		names []string
	}{
		{"on=open do=errno:13", none, []string{"open_device", "errno 13", "/dev/infiniband"}},
		{"on=alloc_pd do=errno:12", none, []string{"alloc_pd", "port 1 is active"}},
		{"on=reg_mr count=all do=errno:12", boot, []string{"reg_mr", "ulimit -l"}},
		{"on=create_cq do=errno:22", boot, []string{"create_cq"}},
		{"on=create_qp do=errno:16", boot, []string{"create_qp", "errno 16", "shared by all processes"}},
		{"on=create_qp do=errno:102", boot, []string{"create_qp", "supports only UC"}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			f := New(t, tbPair+"fault device=a "+c.fault+"\n")
			_, err := bringUp(t, openLibrary(t, f), "a")
			kindOf(t, err, c.kind, append(c.names, " on a")...)
		})
	}
	for _, c := range []struct {
		errno int
		cure  string
	}{{22, "GID"}, {60, "crossed"}, {16, "stuck"}, {96, "idle"}, {110, "addresses"}} {
		t.Run(fmt.Sprint("rtr ", c.errno), func(t *testing.T) {
			_, a, b := apart(t, tbPair+fmt.Sprintf("fault device=a on=rtr do=errno:%d\n", c.errno), verbs.UC, 8)
			require.NoError(t, a.qp.Init(1))
			kindOf(t, a.qp.RTR(routeTo(t, a, b)), boot, "modify_qp to RTR on a", fmt.Sprintf("errno %d", c.errno), c.cure)
		})
	}
	for _, to := range []string{"init", "rts"} {
		t.Run(to, func(t *testing.T) {
			_, a, b := apart(t, tbPair+"fault device=a on="+to+" do=errno:5\n", verbs.UC, 8)
			err := a.qp.Init(1)
			if to == "rts" {
				require.NoError(t, err)
				require.NoError(t, a.qp.RTR(routeTo(t, a, b)))
				err = a.qp.RTS(7, verbs.DefaultRetries)
			}
			kindOf(t, err, boot, "modify_qp to", "destroy the queue pair")
		})
	}
	t.Run("port down", func(t *testing.T) {
		f := New(t, "device a state=down\n")
		_, err := bringUp(t, openLibrary(t, f), "a")
		kindOf(t, err, none, "alloc_pd on a", "port 1 is down")
	})
}

// TestQueriesFail: failed queries are reported by name too, and a device that
// fails to close is kept.
func TestQueriesFail(t *testing.T) {
	f := New(t, "device a\nfault on=query do=errno:5\nfault on=port do=errno:5\nfault on=close do=errno:16\n")
	lib := openLibrary(t, f)
	dev, err := lib.Device("a")
	require.NoError(t, err)
	ctx, err := dev.Open()
	require.NoError(t, err)
	_, err = ctx.Query()
	kindOf(t, err, syscall.EIO, "query_device on a", "kernel's log")
	_, err = ctx.GIDs(1)
	kindOf(t, err, syscall.EIO, "query_port on a", "ibv_devinfo")
	_, err = ctx.Query()
	require.NoError(t, err)
	require.ErrorContains(t, ctx.Close(), "close_device on a: errno 16")
	require.Equal(t, 1, f.Count("contexts"))
	require.NoError(t, ctx.Close())
	require.Zero(t, f.Count("contexts"))
}

// TestFatesOfCalls: a rail, port or host dies in a call that is not a message.
func TestFatesOfCalls(t *testing.T) {
	for _, fault := range []string{
		"device=a on=post_send nth=2 do=kill_rail", "device=a on=post_send nth=2 do=kill_direction", "device=a on=post_send nth=2 do=port_down",
		"device=a on=post_send nth=2 do=kill_host", "device=b on=post_recv nth=2 do=kill_host", "device=b on=recv nth=2 do=kill_host",
		"device=b on=poll do=kill_host", "device=b on=poll_any do=kill_host", "device=a on=rts do=kill_rail", "device=a on=rtr do=port_down",
	} {
		t.Run(fault, func(t *testing.T) {
			f, a, b := link(t, tbPair+"fault "+fault+"\n", verbs.UC, 8)
			for i := range 3 {
				b.recv(t, uint64(i), 0, 64)
				a.send(t, uint64(i), 0, 64)
				_, err := b.cq.Poll(make([]verbs.WC, 1))
				require.NoError(t, err)
			}
			none(t, b)
			require.Less(t, f.Count("messages"), 2, "the first may pass")
			require.Equal(t, 1, f.Count("fault:0"))
		})
	}
}

// bringUp opens a device and sets it up to a queue pair; everything it created
// is closed.
func bringUp(t testing.TB, lib *verbs.Library, name string) (*verbs.Context, error) {
	dev, err := lib.Device(name)
	require.NoError(t, err)
	ctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	slab, err := verbs.NewSlab(1)
	require.NoError(t, err)
	if _, err = pd.RegMR(slab, verbs.AccessAuto); err != nil {
		return nil, err
	}
	cq, err := ctx.CreateCQ(8)
	if err != nil {
		return nil, err
	}
	_, err = pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: cq, RecvCQ: cq, Caps: verbs.Caps{SendWR: 2, RecvWR: 2}})
	return ctx, err
}
