package server

import (
	"context"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/node"
	"ringmaster/parallel"
)

// groupMetrics exposes the statistics of each rank, layer and exchange.
type groupMetrics struct {
	leader *node.Leader
	chosen func() [][]uint64 // Node.Chosen

	up, ranks, epoch, recoveries, recovery, work, tokens, stepTime, popular *prometheus.Desc
	routed, busiest                                                         []metric[parallel.Routed] // of each rank; of the group
	layers                                                                  []metric[parallel.LayerStats]
	exchanges                                                               []metric[parallel.Exchange]
}

// metric is a value of each layer, or of the exchanges of each purpose and collective.
type metric[T any] struct {
	desc  *prometheus.Desc
	value func(T) float64
}

func newGroupMetrics(l *node.Leader, chosen func() [][]uint64) *groupMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ringmaster_"+name, help, labels, nil)
	}
	layer := func(name, help string, value func(parallel.LayerStats) float64) metric[parallel.LayerStats] {
		return metric[parallel.LayerStats]{desc("layer_"+name, help, "rank", "layer"), value}
	}
	exchange := func(name, help string, value func(parallel.Exchange) float64) metric[parallel.Exchange] {
		return metric[parallel.Exchange]{desc("exchange_"+name, help, "rank", "purpose", "op"), value}
	}
	return &groupMetrics{
		leader:     l,
		chosen:     chosen,
		up:         desc("group_up", "1 while an epoch is running, else 0."),
		ranks:      desc("group_ranks", "Ranks that form the running epoch, 0 if none runs."),
		epoch:      desc("group_epoch", "Number of the current epoch."),
		recoveries: desc("group_recoveries_total", "Steps that were interrupted by the loss, the return or the leave of a rank and ran again."),
		recovery:   desc("group_recovery_seconds_total", "Time from the interruption of steps that ran again (ringmaster_group_recoveries_total) to their end."),
		work:       desc("rank_steps_total", "Steps that the rank has run.", "rank"),
		tokens:     desc("rank_tokens_total", "Tokens that the rank has processed.", "rank"),
		routed: []metric[parallel.Routed]{
			{desc("rank_expert_rows_total", "Rows that the rank multiplied with routed experts, once for each expert.", "rank"), func(r parallel.Routed) float64 { return float64(r.Rows) }},
			{desc("rank_expert_read_bytes_total", "Bytes of routed experts that the rank read, once in each step and layer.", "rank"), func(r parallel.Routed) float64 { return float64(r.Bytes) }},
		},
		busiest: []metric[parallel.Routed]{
			{desc("group_busiest_expert_rows_total", "Sum over steps and layers of ringmaster_rank_expert_rows_total of the rank with most."), func(r parallel.Routed) float64 { return float64(r.BusiestRows) }},
			{desc("group_busiest_expert_read_bytes_total", "Sum over steps and layers of ringmaster_rank_expert_read_bytes_total of the rank with most."), func(r parallel.Routed) float64 { return float64(r.BusiestBytes) }},
		},
		popular:  desc("layer_popular_experts_ratio", "Choices of experts that went to the quarter of the experts of a layer that was chosen most; 0.25 if all are chosen alike.", "layer"),
		stepTime: desc("rank_step_seconds_total", "Time that the rank has spent in steps.", "rank"),
		layers: []metric[parallel.LayerStats]{
			layer("compute_seconds_total", "Time spent computing.", func(l parallel.LayerStats) float64 { return l.Compute.Seconds() }),
			layer("waiting_seconds_total", "Time spent waiting for the slowest rank.", func(l parallel.LayerStats) float64 { return l.Waiting.Seconds() }),
			layer("wire_seconds_total", "Time spent waiting for data transfer.", func(l parallel.LayerStats) float64 { return l.Wire.Seconds() }),
			layer("sent_bytes_total", "Bytes sent to other ranks.", func(l parallel.LayerStats) float64 { return float64(l.Sent) }),
			layer("received_bytes_total", "Bytes received from other ranks.", func(l parallel.LayerStats) float64 { return float64(l.Received) }),
			layer("exchanges_total", "Exchanges with the other ranks.", func(l parallel.LayerStats) float64 { return float64(l.Exchanges) }),
			layer("float16_overflows_total", "Exchanges repeated in float32 because a value exceeded the range of float16; with --reduce exact, those in which some sums needed more than 32 bits.", func(l parallel.LayerStats) float64 { return float64(l.Overflows) }),
		},
		exchanges: []metric[parallel.Exchange]{
			exchange("compute_seconds_total", "Time spent computing what is exchanged, since the exchange before.", func(x parallel.Exchange) float64 { return x.Compute.Seconds() }),
			exchange("waiting_seconds_total", "Time spent waiting for the slowest rank.", func(x parallel.Exchange) float64 { return x.Waiting.Seconds() }),
			exchange("wire_seconds_total", "Time spent waiting for data transfer.", func(x parallel.Exchange) float64 { return x.Wire.Seconds() }),
			exchange("sent_bytes_total", "Bytes sent to other ranks.", func(x parallel.Exchange) float64 { return float64(x.Sent) }),
			exchange("count_total", "Exchanges with the other ranks.", func(x parallel.Exchange) float64 { return float64(x.Count) }),
		},
	}
}

// Describe implements prometheus.Collector.
func (g *groupMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.up, g.ranks, g.epoch, g.recoveries, g.recovery, g.work, g.tokens, g.stepTime, g.popular} {
		out <- d
	}
	for _, r := range slices.Concat(g.routed, g.busiest) {
		out <- r.desc
	}
	for _, l := range g.layers {
		out <- l.desc
	}
	for _, x := range g.exchanges {
		out <- x.desc
	}
}

// Collect implements prometheus.Collector.
func (g *groupMetrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	n, ranks := g.leader.Steps.Members()
	gauge(g.epoch, float64(n))
	gauge(g.ranks, float64(len(ranks)))
	if len(ranks) > 0 {
		gauge(g.up, 1)
	} else {
		gauge(g.up, 0)
	}
	again, took := g.leader.Steps.Recoveries()
	counter(g.recoveries, float64(again))
	counter(g.recovery, took.Seconds())
	for layer, counts := range g.chosen() {
		if ratio, known := popularQuarter(counts); known {
			out <- prometheus.MustNewConstMetric(g.popular, prometheus.GaugeValue, ratio, strconv.Itoa(layer))
		}
	}
	for _, r := range g.leader.RecentReports(context.Background(), 0) {
		if r.Epoch == 0 { // no member of the epoch
			continue
		}
		rank := strconv.Itoa(r.Rank)
		counter(g.work, float64(r.Steps), rank)
		counter(g.tokens, float64(r.Tokens), rank)
		counter(g.stepTime, r.Time.Seconds(), rank)
		routed := r.Total().Routed
		for _, m := range g.routed {
			counter(m.desc, m.value(routed), rank)
		}
		if r.Rank == 0 { // the same on every rank
			for _, m := range g.busiest {
				counter(m.desc, m.value(routed))
			}
		}
		for i, l := range r.Layers {
			for _, m := range g.layers {
				counter(m.desc, m.value(l), rank, strconv.Itoa(i))
			}
		}
		for _, x := range parallel.OfAllLayers(r.Exchanges) {
			for _, m := range g.exchanges {
				counter(m.desc, m.value(x), rank, x.Purpose, x.Op)
			}
		}
	}
}

// popularQuarter is the part of the choices that went to the quarter of the experts that was
// chosen most, false if none was counted.
func popularQuarter(counts []uint64) (ratio float64, known bool) {
	sorted := slices.Clone(counts)
	slices.Sort(sorted)
	all, most := 0.0, 0.0
	for i, n := range sorted {
		all += float64(n)
		if i >= len(sorted)-len(sorted)/4 {
			most += float64(n)
		}
	}
	return most / max(all, 1), all > 0
}
