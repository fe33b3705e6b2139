package matrix

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// cabling is what Pair must find: the device at the other end of each cable.
type cabling map[port]port

func (c cabling) join(a, b port) { c[a], c[b] = b, a }

// hosts makes what the hosts know about the cabling: domains, subnets, or neither.
func (c cabling) hosts(m Matrix, domains, subnets bool) []Host {
	hosts := make([]Host, len(m))
	number := map[port]int{}
	id := func(p port) string { return fmt.Sprintf("DOMAIN-%d-%s", p.rank, p.name) }
	for r := range m {
		for _, name := range m.Devices(r) {
			p := port{r, name}
			d := Device{Name: name, State: "ACTIVE"}
			far, ok := c[p]
			if domains {
				d.Domain = id(p)
				if ok {
					d.FarDomain = id(far)
				}
			}
			if subnets && ok {
				key := p
				if far.rank < p.rank {
					key = far
				}
				if _, ok := number[key]; !ok {
					number[key] = len(number)
				}
				host := byte(number[key]*4 + 1)
				if key != p {
					host++
				}
				d.Addrs = []netip.Prefix{netip.MustParsePrefix("169.254.3.4/16"), netip.MustParsePrefix("fe80::7/64"),
					netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(number[key] / 64), host}), 30)}
			}
			hosts[r].Devices = append(hosts[r].Devices, d)
		}
	}
	return hosts
}

// settle calls Pair until it requests no more attempts, and answers with the truth.
func settle(t *testing.T, m Matrix, hosts []Host, truth cabling, o Options) *Pairing {
	t.Helper()
	o.Probed = map[Attempt]bool{}
	for range 20 {
		p, err := Pair(m, hosts, o)
		require.NoError(t, err)
		if len(p.Try) == 0 {
			return p
		}
		busy := map[port]bool{}
		for _, a := range p.Try {
			x, y := port{a.RankA, a.DeviceA}, port{a.RankB, a.DeviceB}
			require.False(t, busy[x] || busy[y], "a device in two probes at once: %v", a)
			_, again := o.Probed[a]
			require.False(t, again, "tried twice: %v", a)
			busy[x], busy[y] = true, true
			o.Probed[a] = truth[x] == y
		}
	}
	require.Fail(t, "the probes do not end")
	return nil
}

// TestCrossedCables: four files for one cabling, en6-en7 and en7-en6.
func TestCrossedCables(t *testing.T) {
	truth := cabling{}
	truth.join(port{0, "en6"}, port{1, "en7"})
	truth.join(port{0, "en7"}, port{1, "en6"})
	for _, c := range []struct{ file, want, note string }{
		{`[[null,["en6","en7"]],[["en6","en7"],null]]`, `[[null,["en6","en7"]],[["en7","en6"],null]]`,
			"ranks 0 and 1: cables en6-en7 and en7-en6: the file lists them crossed; rails reordered"},
		{`[[null,["en7","en6"]],[["en7","en6"],null]]`, `[[null,["en7","en6"]],[["en6","en7"],null]]`,
			"ranks 0 and 1: cables en7-en6 and en6-en7: the file lists them crossed; rails reordered"},
		{`[[null,["en6","en7"]],[["en7","en6"],null]]`, `[[null,["en6","en7"]],[["en7","en6"],null]]`, ""},
		{`[[null,["en7","en6"]],[["en6","en7"],null]]`, `[[null,["en7","en6"]],[["en6","en7"],null]]`, ""},
	} {
		m := parsed(t, c.file)
		for _, know := range []struct {
			key              string
			domains, subnets bool
		}{{"domain", true, true}, {"domain", true, false}, {"subnet", false, true}, {"probe", false, false}} {
			hosts := truth.hosts(m, know.domains, know.subnets)
			p := settle(t, m, hosts, truth, Options{})
			require.JSONEq(t, c.want, string(p.Matrix.Format()))
			require.Equal(t, know.key, p.Cables[0].Key)
			if c.note == "" {
				require.Empty(t, p.Notes)
				continue
			}
			require.Equal(t, []string{c.note}, p.Notes)
			if know.domains {
				_, err := Pair(m, hosts, Options{Strict: true})
				require.ErrorIs(t, err, distributed.ErrConfig)
				require.ErrorContains(t, err, c.note)
			}
		}
	}
}

// TestProbes: the first round tries the order of the file, the next the others.
func TestProbes(t *testing.T) {
	m := parsed(t, `[[null,["a","b","c"]],[["x","y","z"],null]]`)
	hosts := cabling{}.hosts(m, false, false)
	try := func(probed map[Attempt]bool) []Attempt {
		p, err := Pair(m, hosts, Options{Probed: probed})
		require.NoError(t, err)
		return p.Try
	}
	at := func(a, b string) Attempt { return Attempt{0, a, 1, b} }
	require.Equal(t, []Attempt{at("a", "x"), at("b", "y"), at("c", "z")}, try(nil))
	probed := map[Attempt]bool{at("a", "x"): false, at("b", "y"): true, at("c", "z"): false}
	require.Equal(t, []Attempt{at("c", "x"), at("a", "z")}, try(probed))
	require.Equal(t, "rank 0 a - rank 1 x", at("a", "x").String())
}

func TestLeftOut(t *testing.T) {
	truth := cabling{}
	truth.join(port{0, "a"}, port{1, "x"})
	truth.join(port{0, "b"}, port{1, "y"})
	m := parsed(t, `[[null,["a","b"]],[["x","y"],null]]`)
	one := `[[null,"b"],["y",null]]`

	hosts := truth.hosts(m, true, false)
	hosts[1].Devices[0].State = "DOWN"
	p := settle(t, m, hosts, truth, Options{})
	require.JSONEq(t, one, string(p.Matrix.Format()))
	require.Equal(t, []string{"rank 0 a, listed for rank 1: no device of rank 1 is at its other end; rail left out",
		"rank 1 x, listed for rank 0: its port is DOWN; rail left out"}, p.Notes)
	_, err := Pair(m, hosts, Options{Strict: true})
	require.ErrorContains(t, err, "its port is DOWN")

	// A rail that is known by its domains, but carries no data.
	hosts = truth.hosts(m, true, false)
	p, err = Pair(m, hosts, Options{Probed: map[Attempt]bool{{0, "a", 1, "x"}: false}})
	require.NoError(t, err)
	require.Empty(t, p.Try)
	require.JSONEq(t, one, string(p.Matrix.Format()))
	require.Equal(t, []string{"rank 0 a, listed for rank 1: no data arrived through its cable; rail left out",
		"rank 1 x, listed for rank 0: no data arrived through its cable; rail left out"}, p.Notes)

	// The same without domains: one of the probes succeeds, the others do not.
	dead := cabling{}
	dead.join(port{0, "b"}, port{1, "y"})
	p = settle(t, m, dead.hosts(m, false, false), dead, Options{})
	require.JSONEq(t, one, string(p.Matrix.Format()))
	require.Contains(t, p.Notes[0], "rank 0 a, listed for rank 1: no data arrived through its cable")

	// A device that is listed for the wrong rank.
	truth = cabling{}
	truth.join(port{0, "a"}, port{1, "x"})
	truth.join(port{0, "b"}, port{2, "p"})
	truth.join(port{1, "y"}, port{2, "q"})
	m = parsed(t, `[[null,"b","a"],["x",null,"y"],["p","q",null]]`)
	p = settle(t, m, truth.hosts(m, true, false), truth, Options{})
	require.Contains(t, p.Notes, "rank 0 b, listed for rank 1: its cable leads to rank 2; rail left out")

	// Different numbers: the device without a partner is left out.
	truth = cabling{}
	truth.join(port{0, "b"}, port{1, "x"})
	m = parsed(t, `[[null,["a","b"]],["x",null]]`)
	p = settle(t, m, truth.hosts(m, false, false), truth, Options{})
	require.JSONEq(t, `[[null,"b"],["x",null]]`, string(p.Matrix.Format()))

	// A name that the host does not have.
	hosts = truth.hosts(m, false, false)
	hosts[0].Devices = hosts[0].Devices[1:]
	p = settle(t, m, hosts, truth, Options{})
	require.Contains(t, p.Notes, "rank 0 a, listed for rank 1: the rank has no such device; rail left out")
	p = settle(t, parsed(t, `[[null,"a"],["b",null]]`), make([]Host, 2), truth, Options{})
	require.Equal(t, []Cable{{Attempt{0, "a", 1, "b"}, "order"}}, p.Cables)

	_, err = Pair(m, nil, Options{})
	require.ErrorIs(t, err, distributed.ErrConfig)
}

// TestSwitched: on a switched network, where all interfaces may have one subnet,
// rails keep the order of the file.
func TestSwitched(t *testing.T) {
	m := parsed(t, `[[null,["a","b"]],[["x","y"],null]]`)
	hosts := cabling{}.hosts(m, false, false)
	p, err := Pair(m, hosts, Options{Switched: true})
	require.NoError(t, err)
	require.Equal(t, m, p.Matrix)
	require.Equal(t, "order", p.Cables[1].Key)
	// One /64 for all ports identifies no cables.
	for r := range hosts {
		for k := range hosts[r].Devices {
			hosts[r].Devices[k].Addrs = prefixes(fmt.Sprintf("fd00::%d:%d/64", r, k+1))
		}
	}
	p, err = Pair(m, hosts, Options{})
	require.NoError(t, err)
	require.Len(t, p.Try, 2)
}

// TestAnyPermutation: whatever the order of the names on both sides, Pair finds
// the cables, with each kind of knowledge.
func TestAnyPermutation(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	crossed := 0
	for n := 2; n <= 8; n++ {
		for rails := 1; rails <= 4; rails++ {
			for try := range 12 {
				truth := cabling{}
				m := network(n, full(n, rails))
				for i := range n {
					for j := i + 1; j < n; j++ {
						for k := range rails {
							truth.join(port{i, m[i][j][k]}, port{j, m[j][i][k]})
						}
					}
				}
				for i := range n {
					for j := range n {
						names := m[i][j]
						rng.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
					}
				}
				hosts := truth.hosts(m, try%3 == 0, try%3 == 1)
				if try%6 == 0 { // half of the far ends are not known
					for r := range hosts {
						for k := range hosts[r].Devices {
							if (r+k)%2 == 0 {
								hosts[r].Devices[k].FarDomain = ""
							}
						}
					}
				}
				p := settle(t, m, hosts, truth, Options{})
				require.Len(t, p.Cables, n*(n-1)/2*rails)
				for i := range n {
					for j := range n {
						if i == j {
							continue
						}
						require.Len(t, p.Matrix[i][j], rails)
						for k, name := range p.Matrix[i][j] {
							require.Equal(t, truth[port{i, name}], port{j, p.Matrix[j][i][k]})
						}
						if i < j {
							require.Equal(t, m[i][j], p.Matrix[i][j], "the lower rank's order is kept")
						}
					}
				}
				crossed += len(p.Notes)
				// The paired result is not crossed any more.
				again := settle(t, p.Matrix, hosts, truth, Options{})
				require.Empty(t, again.Notes)
				require.Equal(t, p.Matrix, again.Matrix)
			}
		}
	}
	require.Greater(t, crossed, 100)
}
