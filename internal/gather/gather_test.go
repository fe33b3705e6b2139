package gather

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/control"
	"ringmaster/groupplan"
	"ringmaster/internal/pairing"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
)

const testLimit = time.Minute

// said is what people are told.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// led is a host that leads a group on loopback.
type led struct {
	*Host
	out  *said
	addr string
}

func lead(t *testing.T, o LeadOptions) led {
	t.Helper()
	out := &said{}
	o.Listen, o.Coordinator, o.Out = "127.0.0.1:0", cmp.Or(o.Coordinator, "127.0.0.1:9000"), out
	if o.Ranks == nil {
		o.Ranks = func() []cluster.RankStatus { return nil }
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	h, err := Lead(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return led{h, out, h.desk.Addr().String()}
}

var shown = regexp.MustCompile(`--code (\S+)`)

func (l led) code() string {
	all := shown.FindAllStringSubmatch(l.out.String(), -1)
	return all[len(all)-1][1]
}

func (l led) join(t *testing.T, o JoinOptions) (Seat, string, error) {
	t.Helper()
	out := &said{}
	o.Host, o.Out, o.Report = l.addr, out, silent{}
	seat, err := Join(testenv.Within(t, testLimit), o)
	t.Cleanup(seat.Close)
	return seat, out.String(), err
}

// TestJoin: a host gets a rank, the key, the settings and the model by the code, and returns
// without it. What it keeps only its user can read.
func TestJoin(t *testing.T) {
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "m.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	dir := t.TempDir()
	settings := map[string][]string{"activations": {"8"}}
	l := lead(t, LeadOptions{Name: "studio", Dir: dir, Model: path, Settings: settings})
	require.Contains(t, l.out.String(), "Group studio (")
	require.Contains(t, l.out.String(), "ringmaster join "+l.addr+" --code ")

	o := JoinOptions{Dir: t.TempDir(), Files: t.TempDir(), Code: l.code()}
	seat, out, err := l.join(t, o)
	require.NoError(t, err)
	require.Equal(t, 1, seat.Rank)
	require.Equal(t, groupplan.MaxRanks, seat.Size)
	require.Equal(t, "127.0.0.1:9000", seat.Coordinator)
	require.Equal(t, settings, seat.Settings)
	require.Contains(t, out, "127.0.0.1 ")
	require.Contains(t, out, "(used, the fastest)")
	require.Contains(t, out, "as rank 1")
	require.Equal(t, testenv.ReadFile(t, path), testenv.ReadFile(t, seat.Model), "the model was copied")
	key, err := control.ReadKey(seat.KeyFile)
	require.NoError(t, err)
	require.Equal(t, l.key, key)
	for _, d := range []string{dir, o.Dir} {
		require.NoError(t, filepath.WalkDir(d, func(path string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil && path != d && info.Mode().Perm()&0o077 != 0 {
				err = fmt.Errorf("%s has mode %v", path, info.Mode())
			}
			return err
		}))
	}

	seat, _, err = l.join(t, JoinOptions{Dir: o.Dir, Files: o.Files})
	require.NoError(t, err, "no code")
	require.Equal(t, 1, seat.Rank)
	seat, _, err = l.join(t, JoinOptions{Dir: t.TempDir(), Model: path, Code: l.code()})
	require.NoError(t, err)
	require.Equal(t, 2, seat.Rank, "another host")
	require.Equal(t, path, seat.Model, "its own file")
	l.Close()

	again := lead(t, LeadOptions{Name: "studio", Dir: dir})
	require.NotEqual(t, l.code(), again.code())
	require.Equal(t, l.key, again.key)
	seat, _, err = again.join(t, JoinOptions{Dir: o.Dir, Group: "studio"})
	require.NoError(t, err, "the group started again knows its hosts")
	require.Equal(t, 1, seat.Rank)
	require.Empty(t, seat.Model, "the built-in one")
	_, _, err = again.join(t, JoinOptions{Dir: o.Dir, Model: path})
	require.ErrorContains(t, err, "the group runs the built-in model")
}

// TestJoinRefused: what a host is told that may not join, and that it keeps nothing.
func TestJoinRefused(t *testing.T) {
	l := lead(t, LeadOptions{Name: "studio"})
	wrong := "222-222"
	if l.code() == wrong {
		wrong = "333-333"
	}
	for name, c := range map[string]struct {
		o    JoinOptions
		says string
	}{
		"no code":       {JoinOptions{}, "--code is missing"},
		"no real code":  {JoinOptions{Code: "hello"}, "expected a code such as"},
		"wrong code":    {JoinOptions{Code: wrong}, "the code is wrong"},
		"another group": {JoinOptions{Code: wrong, Group: "attic"}, "leads the group studio ("},
		"a person gives no code": {JoinOptions{Ask: func(context.Context, string) (string, error) { return "?", nil }},
			"no code was given"},
		"a person leaves": {JoinOptions{Ask: func(context.Context, string) (string, error) { return "", errors.New("left") }}, "left"},
	} {
		c.o.Dir = t.TempDir()
		_, _, err := l.join(t, c.o)
		require.ErrorContains(t, err, c.says, name)
		kept, err := os.ReadDir(c.o.Dir)
		require.NoError(t, err)
		require.Empty(t, kept, name)
	}
	require.Empty(t, l.seats.saved.Hosts, "and the group gave no rank")
}

// TestJoinsTwice: a host that is a rank cannot be another one, and is one again when it has left.
func TestJoinsTwice(t *testing.T) {
	l := lead(t, LeadOptions{Name: "studio"})
	o := JoinOptions{Dir: t.TempDir(), Code: l.code()}
	seat, _, err := l.join(t, o)
	require.NoError(t, err)
	attends, stop := context.WithCancel(t.Context())
	left := make(chan bool, 1)
	go func() { left <- seat.Moves(attends) }()
	seated := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.guests[1] != nil && l.guests[1].seated
	}
	require.Eventually(t, seated, testLimit, time.Millisecond)
	_, _, err = l.join(t, o)
	require.ErrorContains(t, err, "has joined already, as rank 1")
	stop()
	require.False(t, <-left)
	require.Eventually(t, func() bool { return !seated() }, testLimit, time.Millisecond)
	seat, _, err = l.join(t, o)
	require.NoError(t, err)
	require.Equal(t, 1, seat.Rank)
}

// TestStoppedWhileItJoins: a host that got a rank and could not join returns as the same host,
// without the code, and not as another one that needs a rank.
func TestStoppedWhileItJoins(t *testing.T) {
	hosts, code, key := make(chan string, 2), "", bytes.Repeat([]byte("k"), 32)
	d, err := pairing.Open(t.Context(), pairing.DeskOptions{Group: pairing.NewGroup("studio"), Key: key, Listen: "127.0.0.1:0",
		Code: func(c, _ string) { code = c },
		Serve: func(ctx context.Context, c *pairing.Conn) {
			_, payload, err := c.Receive(ctx, testLimit)
			if err != nil {
				return
			}
			if a, err := pairing.Read[application](payload); err == nil {
				hosts <- a.Host
			}
			_ = c.Send(msgTicket, ticket{Rank: 1, Size: 2, Key: key, Port: 1, Desk: 1}) // where no desk is
			_, _, _ = c.Receive(ctx, testLimit)
		}})
	require.NoError(t, err)
	defer d.Close()
	o := JoinOptions{Dir: t.TempDir(), Host: d.Addr().String(), Code: code, Out: &said{}}
	for range 2 {
		_, err = Join(testenv.Within(t, testLimit), o)
		require.ErrorContains(t, err, "no address of the group works")
		o.Code = ""
	}
	require.Equal(t, <-hosts, <-hosts)
}

// TestGroupElsewhere: a rank finds a group that has started again at other ports, and takes
// another rank if the group has given its own away.
func TestGroupElsewhere(t *testing.T) {
	dir := t.TempDir()
	l := lead(t, LeadOptions{Name: "studio", Dir: dir})
	seat, _, err := l.join(t, JoinOptions{Dir: t.TempDir(), Code: l.code()})
	require.NoError(t, err)
	require.Equal(t, 1, seat.Rank)
	l.Close()
	l.seats.saved.Hosts[0].Host = "another"
	require.NoError(t, writeState(l.seats.path, l.seats.saved))

	again := lead(t, LeadOptions{Name: "studio", Dir: dir, Coordinator: "127.0.0.1:9001"})
	seat.Close()
	seat.member.Desks = []string{again.addr}
	require.NoError(t, seat.back(testenv.Within(t, testLimit)))
	require.Equal(t, 2, seat.Rank)
	require.Equal(t, "127.0.0.1:9001", seat.Coordinator)
	kept := &joiner{JoinOptions: JoinOptions{Dir: seat.joiner.Dir}}
	require.NoError(t, kept.known())
	require.Equal(t, again.addr, kept.membership(seat.Group).Desks[0])
}

// TestAskedCode: a person at a terminal is asked for the code.
func TestAskedCode(t *testing.T) {
	l := lead(t, LeadOptions{Name: "studio"})
	asked := ""
	seat, out, err := l.join(t, JoinOptions{Dir: t.TempDir(), Ask: func(_ context.Context, question string) (string, error) {
		if asked += question; len(asked) == len(question) {
			return "oh", nil
		}
		return l.code(), nil
	}})
	require.NoError(t, err)
	require.Equal(t, 1, seat.Rank)
	require.Contains(t, asked, l.seats.saved.Group.String())
	require.Contains(t, out, "A code has 6 letters")
}

// TestSeats: ranks by order of arrival, the same for a host that returns; the eighth host gets
// the rank of the one that is away for longest, if one is.
func TestSeats(t *testing.T) {
	s, err := openSeats(t.TempDir(), "studio")
	require.NoError(t, err)
	now, later := time.Unix(1e9, 0), quietLimit
	here := map[int]bool{}
	take := func(host string) (int, error) {
		now = now.Add(later)
		got, err := s.take(application{host, "name of " + host}, now, func(rank int) bool { return here[rank] })
		return got.Rank, err
	}
	for rank := 1; rank < groupplan.MaxRanks; rank++ {
		got, err := take(fmt.Sprint("host ", rank))
		require.NoError(t, err)
		require.Equal(t, rank, got)
		here[rank] = true
	}
	got, err := take("host 3")
	require.NoError(t, err)
	require.Equal(t, 3, got)
	_, err = take("one more")
	require.ErrorIs(t, err, errFull)
	here[3], here[5] = false, false
	got, err = take("one more")
	require.NoError(t, err)
	require.Equal(t, 5, got, "that of host 3 returned later")
	require.Equal(t, "name of one more", s.name(5))
	later = 0
	here[3] = true
	_, err = take("one at the same time")
	require.ErrorIs(t, err, errFull, "the host of rank 5 has asked, and is not at the desk yet")
	later = quietLimit
	here[3], here[5] = false, true
	got, err = take("host 5")
	require.NoError(t, err)
	require.Equal(t, 3, got)
	for _, bad := range []string{"", string(make([]byte, 2*mostHostName))} {
		_, err = take(bad)
		require.ErrorContains(t, err, "who it is")
	}
	_, err = openSeats(filepath.Dir(s.path), "another name")
	require.ErrorContains(t, err, "choose another name")
	again, err := openSeats(filepath.Dir(s.path), "studio")
	require.NoError(t, err)
	require.Equal(t, s.saved.Group, again.saved.Group)
	require.Len(t, again.saved.Hosts, groupplan.MaxRanks-1)
}

// TestState: a file with a key that others can read, or that says something else, is refused.
func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, writeState(path, membership{Host: "a"}))
	var m membership
	require.NoError(t, readState(path, &m))
	require.Equal(t, "a", m.Host)
	require.NoError(t, os.Chmod(path, 0o644))
	require.ErrorContains(t, readState(path, &m), "chmod 600")
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, readState(path, &m), os.ErrNotExist)
	testenv.WriteFile(t, path, "{")
	require.ErrorContains(t, readState(path, &m), "join again")
}

// TestPaths: which address is used, and what people are told of the others.
func TestPaths(t *testing.T) {
	down := errors.New("no route")
	ms := time.Millisecond
	paths := []path{{addr: "10.0.0.1", rtt: ms, rate: 1e8}, {addr: "10.1.0.1", rtt: ms, rate: 1e9}, {addr: "10.2.0.1", err: down}, {addr: "fe80::1%en1", rtt: ms / 10, rate: 9.5e8}}
	require.Equal(t, 1, at(paths, ""))
	require.Equal(t, 0, at(paths, "10.0.0.1"))
	require.Equal(t, 3, at(paths, "fe80::1"))
	require.Equal(t, -1, at(paths, "10.2.0.1"), "which does not work")
	require.Equal(t, map[string]float64{"10.0.0.1": 1e8, "10.1.0.1": 1e9, "fe80::1": 9.5e8}, rates(paths))
	text := describe(paths, 1)
	require.Contains(t, text, "10.0.0.1 800 Mbit/s, 1ms;")
	require.Contains(t, text, "10.1.0.1 8 Gbit/s, 1ms (used, the fastest)")
	require.Contains(t, text, "10.2.0.1 does not work (no route)")
	require.Contains(t, describe(paths, 0), "(used, because it works for all hosts)")

	require.Equal(t, []path{{addr: "10.0.0.1", link: 2}, {addr: "fe80::1%a", link: 2}, {addr: "fe80::1%b", link: 2}, {addr: "fd00::1", link: 3}, {addr: "10.0.0.9", link: -1}},
		candidates([]offer{{"10.0.0.1", 2}, {"fe80::1", 2}, {"junk", 2}, {"0.0.0.0", 2}, {"224.0.0.1", 2}, {"fd00::1", 3}, {"10.0.0.1", 4}}, "10.0.0.9", []string{"a", "b"}))
	require.Equal(t, []string{"10.0.0.1"}, addrsOf(candidates([]offer{{"10.0.0.1", 2}}, "10.0.0.1", nil)))

	late := fmt.Errorf("connect: %w", os.ErrDeadlineExceeded)
	require.Equal(t, []string{"10.0.0.1", "fe80::1%a", "10.2.0.1"}, addrsOf(perNetwork([]path{{addr: "10.0.0.1", link: 1}, {addr: "10.1.0.1", link: 2, err: late}, {addr: "fe80::1%a", link: 2},
		{addr: "fe80::2%a", link: 1}, {addr: "10.2.0.1", link: 3, err: late}, {addr: "fe80::3%a", link: 3, err: down}})))
	require.Equal(t, "no answer", (&path{err: late}).why())
	require.Equal(t, "connection refused", (&path{err: fmt.Errorf("at length: %w", syscall.ECONNREFUSED)}).why())
}

// addrsOf are the addresses of paths.
func addrsOf(paths []path) (out []string) {
	for _, p := range paths {
		out = append(out, p.addr)
	}
	return out
}

// TestCommonNetwork: all hosts use one address: the present one while it works for all.
func TestCommonNetwork(t *testing.T) {
	type of = map[string]float64
	for name, c := range map[string]struct {
		all           []map[string]float64
		present, used string
		want          string
	}{
		"the first host":              {[]map[string]float64{of{"a": 1, "b": 10}}, "", "", "b"},
		"about as fast":               {[]map[string]float64{of{"a": 10, "b": 11}}, "", "", "a"},
		"that which others use":       {[]map[string]float64{of{"a": 1, "b": 10}, of{"a": 20, "b": 10}}, "b", "", "b"},
		"a host lacks it":             {[]map[string]float64{of{"a": 1, "b": 10}, of{"a": 1}}, "b", "", "a"},
		"fastest for the slowest":     {[]map[string]float64{of{"a": 5, "b": 10}, of{"a": 5, "b": 2}}, "", "", "a"},
		"a host returns to a new one": {[]map[string]float64{of{"a": 1, "b": 10}}, "", "a", "a"},
		"none works for all":          {[]map[string]float64{of{"a": 1}, of{"b": 1}}, "a", "b", ""},
		"no one":                      {nil, "a", "", ""},
	} {
		require.Equal(t, c.want, common(c.all, c.present, c.used), name)
	}
}

// TestTickets: a ticket that cannot be right is refused.
func TestTickets(t *testing.T) {
	good := ticket{Rank: 1, Size: 8, Key: make([]byte, 32), Port: 1, Desk: 2, Files: []modelFile{{"m.gguf", 1}}}
	require.NoError(t, good.check())
	for name, change := range map[string]func(*ticket){
		"rank 0":        func(k *ticket) { k.Rank = 0 },
		"rank of 8":     func(k *ticket) { k.Rank = 8 },
		"size":          func(k *ticket) { k.Size = 9 },
		"key":           func(k *ticket) { k.Key = nil },
		"port":          func(k *ticket) { k.Port = 65536 },
		"desk":          func(k *ticket) { k.Desk = 0 },
		"addresses":     func(k *ticket) { k.Addrs = make([]offer, mostAddrs+1) },
		"path of files": func(k *ticket) { k.Files = []modelFile{{"../m.gguf", 1}} },
		"parent":        func(k *ticket) { k.Files = []modelFile{{"..", 1}} },
		"empty file":    func(k *ticket) { k.Files = []modelFile{{"m.gguf", 0}} },
	} {
		bad := good
		change(&bad)
		require.Error(t, bad.check(), name)
	}
}

// TestChooseGroup: of several groups the one is joined that a person names, or that this host
// has joined before.
func TestChooseGroup(t *testing.T) {
	a, b := pairing.NewGroup("studio"), pairing.NewGroup("attic")
	both := []target{{group: a}, {group: b}}
	j := &joiner{}
	_, err := j.chooseGroup(t.Context(), both)
	require.ErrorContains(t, err, "several groups were found: "+a.String()+", "+b.String()+"; say which with --group")
	j.Ask = func(context.Context, string) (string, error) { return " " + b.Fingerprint(), nil }
	got, err := j.chooseGroup(t.Context(), both)
	require.NoError(t, err)
	require.Equal(t, b, got.group)
	j.Ask = func(context.Context, string) (string, error) { return "cellar", nil }
	_, err = j.chooseGroup(t.Context(), both)
	require.ErrorContains(t, err, "not one of them")
	j.joined = []membership{{Group: a, Desks: []string{"10.0.0.1:1"}}}
	got, err = j.chooseGroup(t.Context(), both)
	require.NoError(t, err)
	require.Equal(t, a, got.group)

	got, err = j.returning(nil)
	require.NoError(t, err)
	require.Equal(t, target{a, []string{"10.0.0.1:1"}}, got)
	j.Group = "cellar"
	_, err = j.returning(map[string]target{b.ID: {group: b}})
	require.ErrorContains(t, err, "no group cellar was found, but "+b.String())
	_, err = j.returning(nil)
	require.ErrorContains(t, err, "ringmaster join HOST")
}
