package forecast

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/kernels/cpu"
)

// hostParser reads the parts of a value of --host.
type hostParser struct {
	Host
	count int             // of equal hosts
	given map[string]bool // names of the parts so far, those of the card behind gpu=
	mac   bool
}

// parseHost reads one value of --host, and how many hosts it stands for.
func parseHost(value string) (Host, int, error) {
	bad := func(part string) error { return fmt.Errorf("%q; expected %s", part, HostSyntax) }
	parts := strings.Split(value, ",")
	memory, ok := size(parts[0])
	if !ok {
		return Host{}, 0, bad(parts[0])
	}
	// What Linux leaves free on an otherwise idle host.
	h := hostParser{Host: Host{Memory: memory, Offer: memory - memory/20, Limit: "95% of the memory", Threads: defaultThreads}, count: 1, given: map[string]bool{}}
	h.Op = defaultOp
	for _, p := range parts[1:] {
		if !h.part(p) {
			return Host{}, 0, bad(p)
		}
	}
	return h.Host, h.count, nil
}

// part reads one part. It reports false for one that is unknown, wrong, given twice, or of a Mac
// beside a graphics card.
func (h *hostParser) part(p string) (ok bool) {
	name, text, _ := strings.Cut(p, "=")
	for _, unit := range []string{rateUnit, speedUnit} {
		if number, found := strings.CutSuffix(p, unit); found {
			name, text = unit, number
		}
	}
	if _, err := strconv.Atoi(strings.TrimPrefix(p, "x")); err == nil {
		name, text = "x", p[1:]
	}
	key, rates := name, &h.Rates
	if h.GPURates != nil && (name == rateUnit || name == speedUnit || name == "op" || name == "wait") {
		key, rates = "gpu "+name, h.GPURates
	}
	if h.given[key] {
		return false
	}
	h.given[key] = true
	switch name {
	case rateUnit:
		rates.Rate, ok = positive(text)
		rates.Rate *= 1e9
	case speedUnit:
		rates.Compute, ok = positive(text)
		rates.Compute *= 1e12 / 2
	case "op":
		rates.Op, ok = duration(text)
	case "wait":
		rates.Wait, ok = duration(text)
	case "mac":
		if h.mac, ok = true, p == name && h.GPURates == nil; !h.given["wait"] {
			h.Wait = macWait
		}
		if h.Threads = 0; !h.given["offer"] {
			h.Offer, h.Limit = h.Memory/4*3, "75% of the memory: what a Mac's GPU may use by default"
		}
	case "offer":
		h.Offer, ok = size(text)
		h.Limit, ok = "as given", ok && h.Offer <= h.Memory
	case "gpu":
		h.GPU, ok = size(text)
		h.GPURates, ok = &Rates{Op: cardOp, Wait: cardWait}, ok && !h.mac
	case "threads":
		h.Threads, ok = count(text, cpu.MaxThreads)
	case "x":
		h.count, ok = count(text, groupplan.MaxRanks)
	}
	return ok
}

// The units of a rate and of a speed.
const (
	rateUnit  = "GB/s"
	speedUnit = "TFLOP/s"
)

// size reads a number of bytes above 0.
func size(text string) (int64, bool) {
	n, err := units.ParseBytes(text)
	return n, err == nil && n > 0
}

// count reads a number from 1 to most.
func count(text string, most int) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= most
}

// duration reads a time of at most a second, as seconds.
func duration(text string) (float64, bool) {
	d, err := time.ParseDuration(text)
	return d.Seconds(), err == nil && d >= 0 && d <= time.Second
}
