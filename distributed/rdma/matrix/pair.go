package matrix

import (
	"fmt"
	"strings"

	"ringmaster/distributed"
)

// Attempt is a probe of whether two devices are the ends of one cable: create a
// queue pair on each, connect them and send a full frame each way.
type Attempt struct {
	RankA   int    `json:"rank_a"` // the lower rank
	DeviceA string `json:"device_a"`
	RankB   int    `json:"rank_b"`
	DeviceB string `json:"device_b"`
}

func (a Attempt) String() string {
	return fmt.Sprintf("rank %d %s - rank %d %s", a.RankA, a.DeviceA, a.RankB, a.DeviceB)
}

// Cable is a rail: its two ends and how they were identified.
type Cable struct {
	Attempt
	Key string // "domain", "subnet", "probe", or "order" of the lists
}

// Options of Pair.
type Options struct {
	// Strict makes Pair fail instead of reordering or leaving out rails.
	Strict bool
	// Switched says that every port reaches every other, so Pair keeps the order
	// of the file.
	Switched bool
	// Probed has the attempts made so far, true if frames arrived in both
	// directions. Callers also enter a rail that failed later as a failed
	// attempt.
	Probed map[Attempt]bool
}

// Pairing is the result of Pair.
type Pairing struct {
	// Matrix has only rails whose two ends are known; rail k of [i][j] and
	// rail k of [j][i] are the ends of one cable.
	Matrix Matrix
	Cables []Cable // by lower rank, higher rank, rail
	// Notes tell people what was reordered and what was left out.
	Notes []string
	// Try lists the attempts to make next. No device is in two of them, so that
	// they can run in parallel. While the list is not empty, Matrix lacks their
	// rails: call Pair again with their results in Probed.
	Try []Attempt
}

// Pair finds the cables between every two ranks. It uses the Thunderbolt domains
// of both ends, otherwise the subnets of their interfaces, otherwise rounds of
// probes: the first round tries each device with the one at the same index of the
// other list, the next round with the one after it, and so on. It leaves out a
// device without a partner. It keeps the order of the lower rank's cell and
// reorders the other cell to match.
//
// The result depends on the arguments alone, so that ranks with the same
// arguments agree. m must have passed Check; known has a Host for each rank,
// which may be empty. Errors wrap distributed.ErrConfig.
func Pair(m Matrix, known []Host, o Options) (*Pairing, error) {
	if len(known) != len(m) {
		return nil, fmt.Errorf("%w: devices of %d ranks for a matrix of %d ranks", distributed.ErrConfig, len(known), len(m))
	}
	p := &Pairing{Matrix: make(Matrix, len(m))}
	for i := range m {
		p.Matrix[i] = make([][]string, len(m))
	}
	for i := range m {
		for j := i + 1; j < len(m); j++ {
			c := cell{i: i, j: j, hosts: known, o: o, p: p}
			for _, d := range m[i][j] {
				c.a = append(c.a, newEnd(&known[i], d))
			}
			for _, d := range m[j][i] {
				c.b = append(c.b, newEnd(&known[j], d))
			}
			c.pair()
		}
	}
	if o.Strict && len(p.Notes) > 0 {
		return nil, fmt.Errorf("%w: device matrix: %s; correct the file, or do not use strict", distributed.ErrConfig, strings.Join(p.Notes, "; "))
	}
	return p, nil
}

// end is a device in a cell.
type end struct {
	Device
	mate int    // 1 + index of its partner in the other list, 0 for none
	key  string // Cable.Key
	out  string // why it is left out, "" if it is not
}

func newEnd(h *Host, name string) end {
	e := end{Device: h.device(name)}
	known := len(h.Devices) == 0 // a host that lists no devices excludes none
	for _, d := range h.Devices {
		known = known || d.Name == name
	}
	switch {
	case !known:
		e.out = "the rank has no such device"
	case !e.Active():
		e.out = "its port is " + e.State
	case e.Lacks != "":
		e.out = e.Lacks
	}
	return e
}

// cell pairs the rails between ranks i and j.
type cell struct {
	i, j  int
	a, b  []end
	hosts []Host
	o     Options
	p     *Pairing
}

func (c *cell) attempt(k, l int) Attempt {
	return Attempt{RankA: c.i, DeviceA: c.a[k].Name, RankB: c.j, DeviceB: c.b[l].Name}
}

func (c *cell) join(k, l int, key string) {
	c.a[k].mate, c.a[k].key = l+1, key
	c.b[l].mate, c.b[l].key = k+1, key
}

func (c *cell) pair() {
	if !c.o.Switched {
		c.byIdentity(byDomain, "domain")
		c.byIdentity(bySubnet, "subnet")
	}
	pending := c.byProbe()
	c.report(pending)
}

// free reports whether an end has no partner yet and may get one.
func (e *end) free() bool { return e.mate == 0 && e.out == "" }

// byIdentity joins ends that are known to belong together. It does not decide if
// an end has two candidates, as when all ends have one subnet.
func (c *cell) byIdentity(want identity, key string) {
	type found struct{ n, at int }
	as, bs := make([]found, len(c.a)), make([]found, len(c.b))
	for k := range c.a {
		for l := range c.b {
			if c.a[k].free() && c.b[l].free() && identify(&c.a[k].Device, &c.b[l].Device) == want {
				as[k] = found{as[k].n + 1, l}
				bs[l] = found{bs[l].n + 1, k}
			}
		}
	}
	for k := range as {
		l := as[k].at
		if as[k].n != 1 || bs[l].n != 1 {
			continue
		}
		if works, tried := c.o.Probed[c.attempt(k, l)]; tried && !works {
			c.a[k].out, c.b[l].out = "no data arrived through its cable", "no data arrived through its cable"
			continue
		}
		c.join(k, l, key)
	}
}

// possible reports whether nothing known excludes that two ends belong together.
func (c *cell) possible(k, l int) bool {
	if !c.a[k].free() || !c.b[l].free() {
		return false
	}
	if !c.o.Switched && identify(&c.a[k].Device, &c.b[l].Device) == excluded {
		return false
	}
	works, tried := c.o.Probed[c.attempt(k, l)]
	return !tried || works
}

// byProbe joins the ends that probes have shown to belong together, and those
// that leave no choice. It reports whether more probes are needed.
func (c *cell) byProbe() bool {
	rounds := max(len(c.a), len(c.b))
	each := func(f func(k, l int)) {
		for shift := range rounds {
			for k := range rounds {
				if l := (k + shift) % rounds; k < len(c.a) && l < len(c.b) && c.possible(k, l) {
					f(k, l)
				}
			}
		}
	}
	each(func(k, l int) {
		if c.o.Probed[c.attempt(k, l)] {
			c.join(k, l, "probe")
		}
	})
	if c.o.Switched || c.noChoice() {
		each(func(k, l int) { c.join(k, l, "order") })
		return false
	}
	busyA, busyB := map[int]bool{}, map[int]bool{}
	for shift := range rounds {
		for k := range rounds {
			l := (k + shift) % rounds
			if k < len(c.a) && l < len(c.b) && !busyA[k] && !busyB[l] && c.possible(k, l) {
				busyA[k], busyB[l] = true, true
				c.p.Try = append(c.p.Try, c.attempt(k, l))
			}
		}
	}
	return len(busyA) > 0
}

// noChoice reports whether the cell has a single device on both sides. No probe
// is then needed to choose, because the proof of every rail before its use shows
// whether it works.
func (c *cell) noChoice() bool { return len(c.a) == 1 && len(c.b) == 1 }

// report adds the rails of the cell to the result, and notes what differs from
// the file.
func (c *cell) report(pending bool) {
	crossed := false
	last := 0
	var cables []string
	for k := range c.a {
		e := &c.a[k]
		if e.mate == 0 {
			continue
		}
		crossed = crossed || e.mate < last
		last = e.mate
		b := &c.b[e.mate-1]
		c.p.Matrix[c.i][c.j] = append(c.p.Matrix[c.i][c.j], e.Name)
		c.p.Matrix[c.j][c.i] = append(c.p.Matrix[c.j][c.i], b.Name)
		c.p.Cables = append(c.p.Cables, Cable{c.attempt(k, e.mate-1), e.key})
		cables = append(cables, e.Name+"-"+b.Name)
	}
	if crossed {
		c.p.Notes = append(c.p.Notes, fmt.Sprintf("ranks %d and %d: cables %s: the file lists them crossed; rails reordered",
			c.i, c.j, strings.Join(cables, " and ")))
	}
	if pending {
		return
	}
	c.leftOut(c.i, c.j, c.a)
	c.leftOut(c.j, c.i, c.b)
}

// leftOut notes the ends that have no partner, and why.
func (c *cell) leftOut(rank, peer int, ends []end) {
	for k := range ends {
		e := &ends[k]
		if e.mate != 0 {
			continue
		}
		why := e.out
		if why == "" {
			why = "no device of rank " + fmt.Sprint(peer) + " is at its other end"
			if at := c.elsewhere(rank, &e.Device); at >= 0 && at != peer {
				why = fmt.Sprintf("its cable leads to rank %d", at)
			} else if c.tried(rank, e.Name) {
				why = "no data arrived through its cable"
			}
		}
		c.p.Notes = append(c.p.Notes, fmt.Sprintf("rank %d %s, listed for rank %d: %s; rail left out", rank, e.Name, peer, why))
	}
}

// tried reports whether a device of this cell has been probed.
func (c *cell) tried(rank int, name string) bool {
	for k := range c.a {
		for l := range c.b {
			a := c.attempt(k, l)
			if _, ok := c.o.Probed[a]; ok && (rank == c.i && a.DeviceA == name || rank == c.j && a.DeviceB == name) {
				return true
			}
		}
	}
	return false
}

// elsewhere returns the rank at the other end of a device's cable, -1 if unknown.
func (c *cell) elsewhere(rank int, d *Device) int {
	for r := range c.hosts {
		for k := range c.hosts[r].Devices {
			if r != rank && identify(d, &c.hosts[r].Devices[k]) == byDomain {
				return r
			}
		}
	}
	return -1
}
