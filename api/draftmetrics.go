package api

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/engine/drafts"
)

var (
	draftTokens = prometheus.NewDesc("ringmaster_draft_tokens_total",
		"Drafts that had a row in a step, by their source and by how many drafts were before them.", []string{"source", "depth"}, nil)
	draftAccepted = prometheus.NewDesc("ringmaster_draft_accepted_tokens_total",
		"Drafts that were what was sampled, by their source and by how many drafts were before them.", []string{"source", "depth"}, nil)
)

// draftMetrics counts drafts. Series that never had any are left out.
type draftMetrics struct{ engine Engine }

// Describe implements prometheus.Collector.
func (draftMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- draftTokens; ch <- draftAccepted }

// Collect implements prometheus.Collector.
func (m draftMetrics) Collect(ch chan<- prometheus.Metric) {
	for source, counts := range m.engine.Stats().Drafts {
		for depth, run := range counts.Run {
			if run == 0 {
				continue
			}
			labels := []string{drafts.Source(source).String(), strconv.Itoa(depth)}
			ch <- prometheus.MustNewConstMetric(draftTokens, prometheus.CounterValue, float64(run), labels...)
			ch <- prometheus.MustNewConstMetric(draftAccepted, prometheus.CounterValue, float64(counts.Accepted[depth]), labels...)
		}
	}
}
