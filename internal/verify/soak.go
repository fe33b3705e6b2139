package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/internal/units"
	"ringmaster/replica"
)

// Expected is what a plan assumes of a link.
type Expected struct {
	Name    string  `json:"name"`
	Rate    float64 `json:"rate"`    // bytes per second of each direction
	Latency float64 `json:"latency"` // seconds of the shortest exchange
}

// How far a link may fall short of the expectation. The latency of an exchange is the
// best that a link can do, but a message passes the same software twice.
const (
	leastOfRate   = 0.7
	mostOfLatency = 3
)

// Link is one direction between two ranks.
type Link struct {
	From        int           `json:"from"`
	To          int           `json:"to"`
	Bytes       int64         `json:"bytes"`
	Corrupt     int64         `json:"corrupt_bytes"`
	Retransmits int64         `json:"retransmits"` // segments; -1: unknown
	Took        time.Duration `json:"took"`        // for these bytes
	Rate        float64       `json:"rate"`        // bytes per second
	Slowest     float64       `json:"slowest"`     // rate of a piece of at least a tenth of the longest pause
	Latency     time.Duration `json:"latency"`     // half of the median round trip of 8 bytes
	Worst       time.Duration `json:"worst"`       // half of the longest
	Why         string        `json:"why,omitempty"`
	FromHost    string        `json:"from_host,omitempty"`
	ToHost      string        `json:"to_host,omitempty"`
}

// ends names the two ranks.
func (l Link) ends() string {
	return fmt.Sprintf("from %s to %s", distributed.RankName(l.From, l.FromHost), distributed.RankName(l.To, l.ToHost))
}

// trips is how many round trips are timed at once.
const trips = 32

// Soak sends known data over each link, one direction after the other, for each long, and
// compares rate and latency with expected, nil for no expectation.
func (x *Examination) Soak(ctx context.Context, each time.Duration, expected *Expected, seed uint64) (Check, []Link, error) {
	c := Check{Name: "links", Verdict: Pass, Figures: map[string]float64{}}
	n := len(x.group.Ranks)
	if n < 2 {
		c.Verdict, c.Detail = NotChecked, "one rank has no links"
		return c, nil, nil
	}
	var links []Link
	for from := range n {
		for to := range n {
			if from == to {
				continue
			}
			l := Link{From: x.group.Ranks[from], To: x.group.Ranks[to]}
			l.FromHost, l.ToHost = x.group.host(l.From), x.group.host(l.To)
			x.progress("links: %s", l.ends())
			if err := x.soak(ctx, &l, from, to, each, seed); err != nil {
				return c, append(links, l), fmt.Errorf("the link %s, after %d bytes: %w", l.ends(), l.Bytes, err)
			}
			l.Why = l.fault(expected)
			links = append(links, l)
		}
	}
	c.summary(links, expected, x)
	return c, links, nil
}

// soak measures one direction.
func (x *Examination) soak(ctx context.Context, l *Link, from, to int, each time.Duration, seed uint64) error {
	var all []time.Duration
	piece := func(bytes, messages int, echo bool) (Reply, replica.Finding, error) {
		seed++
		a, err := x.do(ctx, replica.Task{Links: &replica.Traffic{From: from, To: to, Bytes: bytes, Messages: messages, Echo: echo, Seed: seed}})
		if err != nil {
			return a, replica.Finding{}, err
		}
		l.Corrupt += a.Found[from].Corrupt + a.Found[to].Corrupt
		return a, a.Found[from], nil
	}
	bytes, messages := 64<<10, 1
	for l.Took < each {
		_, f, err := piece(8, trips, true)
		if err != nil {
			return err
		}
		all = append(all, f.Trips...)
		a, f, err := piece(bytes, messages, false)
		if err != nil {
			return err
		}
		took := max(f.Took, time.Nanosecond)
		sent := int64(bytes) * int64(messages)
		l.Bytes, l.Took = l.Bytes+sent, l.Took+took
		if rate := float64(sent) / took.Seconds(); l.Slowest == 0 || rate < l.Slowest && took > x.Pause/10 {
			l.Slowest = rate
		}
		switch {
		case f.Retransmits < 0 || l.Retransmits < 0:
			l.Retransmits = -1
		default:
			l.Retransmits += f.Retransmits
		}
		// First up to a message of the greatest length, then more messages.
		units := x.adapt(max(1, bytes>>10*messages), replica.MostMessage>>10*256, a.Took)
		bytes, messages = min(units<<10, replica.MostMessage), max(1, units<<10/replica.MostMessage)
	}
	slices.Sort(all)
	if len(all) > 0 {
		l.Latency, l.Worst = all[len(all)/2]/2, all[len(all)-1]/2
	}
	l.Rate = float64(l.Bytes) / l.Took.Seconds()
	return nil
}

// fault returns what is wrong with a link, "" for nothing.
func (l *Link) fault(e *Expected) string {
	switch {
	case l.Corrupt > 0:
		return fmt.Sprintf("%d of %d bytes arrived changed", l.Corrupt, l.Bytes)
	case e != nil && l.Rate < leastOfRate*e.Rate:
		return fmt.Sprintf("%s where %s is expected (%s)", rateText(l.Rate), rateText(e.Rate), e.Name)
	case e != nil && l.Latency.Seconds() > mostOfLatency*e.Latency:
		return fmt.Sprintf("%v for a message of 8 bytes where %v is expected (%s)", l.Latency.Round(100), time.Duration(e.Latency*1e9), e.Name)
	}
	return ""
}

func rateText(x float64) string {
	switch {
	case x >= 1e8:
		return fmt.Sprintf("%.2f GB/s", x/1e9)
	case x >= 1e5:
		return fmt.Sprintf("%.2f MB/s", x/1e6)
	}
	return fmt.Sprintf("%.2f kB/s", x/1e3)
}

// summary fills a check from its links.
func (c *Check) summary(links []Link, e *Expected, x *Examination) {
	var bytes, corrupt, again int64
	slow := slices.MinFunc(links, func(a, b Link) int { return cmp.Compare(a.Rate, b.Rate) })
	late := slices.MaxFunc(links, func(a, b Link) int { return cmp.Compare(a.Latency, b.Latency) })
	var rates []float64
	bad := ""
	for _, l := range links {
		rates = append(rates, l.Rate)
		bytes, corrupt = bytes+l.Bytes, corrupt+l.Corrupt
		if again >= 0 {
			again += l.Retransmits
		}
		if l.Retransmits < 0 {
			again = -1
		}
		if l.Why != "" {
			if c.Verdict = Fail; bad != "" {
				bad += "; "
			}
			bad += fmt.Sprintf("%s: %s", l.ends(), l.Why)
		}
	}
	c.Figures["links"], c.Figures["bytes"], c.Figures["corrupt_bytes"], c.Figures["retransmits"] = float64(len(links)), float64(bytes), float64(corrupt), float64(again)
	c.Figures["slowest_bytes_per_second"], c.Figures["median_bytes_per_second"], c.Figures["worst_median_latency_seconds"] = slow.Rate, median(rates), late.Latency.Seconds()
	c.Figures["longest_pause_seconds"] = x.longest.Seconds()
	sent := fmt.Sprintf("%s over %s, %s, %s", units.Count(len(links), "link"), x.group.Transport, units.Bytes(bytes), units.Count(int(corrupt), "corrupt byte"))
	if again >= 0 {
		sent += fmt.Sprintf(", %d segments sent again", again)
	}
	c.Detail = fmt.Sprintf("%s; slowest %s %s (median of all %s), latest %s %v",
		sent, slow.ends(), rateText(slow.Rate), rateText(median(rates)), late.ends(), late.Latency.Round(100))
	switch {
	case bad != "":
		c.Detail = bad + "; " + c.Detail
	case e == nil:
		c.Detail += "; no expectation given (--link)"
	}
}
