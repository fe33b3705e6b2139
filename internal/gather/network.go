package gather

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// All ranks use the same address of rank 0, and so the same network, because they connect to
// each other at the address from which they reach rank 0.

// settle tells the guest which address to use, and the others if all must use another.
func (g *guest) settle(f found) error {
	if g.rank < 0 {
		return errors.New("it has no rank")
	}
	maps.DeleteFunc(f.Rates, func(addr string, rate float64) bool {
		_, known := g.local(addr)
		return rate <= 0 || !known
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rates = f.Rates
	var all []map[string]float64
	for _, x := range g.guests {
		if x.rates != nil {
			all = append(all, x.rates)
		}
	}
	addr := common(all, g.network, f.Uses)
	if addr != "" {
		g.network = addr
	} else if addr = fastest([]map[string]float64{g.rates}); addr == "" {
		// It reaches this host at an address that the host does not know: a translation.
		return g.conn.Send(msgUse, use{Alone: true})
	}
	g.uses = addr
	for _, x := range g.guests { // g itself uses the address already
		if err := x.move(); err != nil {
			slog.Warn("a host was not told to use another network", "error", err)
		}
	}
	return g.conn.Send(msgUse, use{addr, addr != g.network})
}

// move tells a rank that it is to use the address of the others, if it can; mu is held.
func (g *guest) move() error {
	if !g.seated || g.network == "" || g.uses == g.network || g.rates[g.network] == 0 {
		return nil
	}
	g.uses = g.network
	if err := g.conn.Send(msgUse, use{Addr: g.network}); err != nil {
		return fmt.Errorf("rank %d: %w", g.rank, err)
	}
	return nil
}

// common is the address that all hosts are to use, by what works for each and how fast: the
// present one if it works for all, else that which one uses already, else the fastest for the
// slowest; "" if none works for all.
func common(all []map[string]float64, present, used string) string {
	for _, addr := range []string{present, used} {
		if slowest(all, addr) > 0 {
			return addr
		}
	}
	return fastest(all)
}

// fastest is the address that is fastest for the host that it is slowest for; "" if none works
// for all.
func fastest(all []map[string]float64) (best string) {
	if len(all) == 0 {
		return ""
	}
	for _, addr := range slices.Sorted(maps.Keys(all[0])) {
		if slowest(all, addr) > alike*slowest(all, best) {
			best = addr
		}
	}
	return best
}

// slowest is the least rate of an address, 0 if it does not work for all.
func slowest(all []map[string]float64, addr string) float64 {
	if addr == "" || len(all) == 0 {
		return 0
	}
	least := all[0][addr]
	for _, rates := range all {
		least = min(least, rates[addr])
	}
	return least
}
