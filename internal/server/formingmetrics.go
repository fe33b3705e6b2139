package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/distributed/cluster"
	"ringmaster/node"
)

// formingMetrics exposes how long new epochs took to replace others, by parts, and what
// agreeing on each step costs.
type formingMetrics struct {
	leader *node.Leader

	epochs, parts, again, agreeing *prometheus.Desc
}

func newFormingMetrics(l *node.Leader) *formingMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ringmaster_group_"+name, help, labels, nil)
	}
	return &formingMetrics{
		leader:   l,
		epochs:   desc("formed_total", "Epochs that took the place of another, by why that one ended: a rank was lost, or the end was planned because a rank joined or left.", "after"),
		parts:    desc("forming_seconds_total", "Time that epochs needed to take the place of others (ringmaster_group_formed_total), by part: noticing the loss, waiting for missing ranks and pauses, placing, mapping, connecting, starting.", "after", "part"),
		again:    desc("recovery_rerun_seconds_total", "Part of ringmaster_group_recovery_seconds_total in which interrupted steps ran again in the next epoch, with the sequences sent to newcomers."),
		agreeing: desc("step_agreement_seconds_total", "Time from the end of steps on rank 0 until all ranks had run them and agreed on their digests."),
	}
}

// Describe implements prometheus.Collector.
func (f *formingMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.epochs, f.parts, f.again, f.agreeing} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f *formingMetrics) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	lost, planned := f.leader.Formed()
	for after, times := range map[string]cluster.FormingTimes{"loss": lost, "plan": planned} {
		counter(f.epochs, float64(times.Epochs), after)
		for p, t := range times.Parts {
			counter(f.parts, t.Seconds(), after, cluster.Part(p).String())
		}
	}
	counter(f.again, f.leader.Steps.Again().Seconds())
	counter(f.agreeing, f.leader.Steps.Agreeing().Seconds())
}
