package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/engine"
)

// times returns the options of a histogram of seconds. Servers that scrape text get 16
// classic buckets between from and to in equal ratios. Servers that take native
// histograms get buckets a tenth apart, at most 100 of them: these span a factor of
// 10,000, and become coarser beyond.
func times(name, help string, from, to float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help,
		Buckets:                        prometheus.ExponentialBucketsRange(from, to, 16),
		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

// Timings are metrics of the engine's times; it implements engine.Observer.
type Timings struct{ queue, step prometheus.Histogram }

var _ engine.Observer = (*Timings)(nil)

// NewTimings returns empty metrics.
func NewTimings() *Timings {
	return &Timings{
		queue: prometheus.NewHistogram(times("ringmaster_queue_seconds", "Time from the submission of a request to the beginning of its first step.", 0.0005, 600)),
		step:  prometheus.NewHistogram(times("ringmaster_step_seconds", "Duration of the forward passes that were committed.", 0.0005, 60)),
	}
}

// Started implements engine.Observer.
func (t *Timings) Started(waited time.Duration) { t.queue.Observe(waited.Seconds()) }

// Step implements engine.Observer.
func (t *Timings) Step(took time.Duration) { t.step.Observe(took.Seconds()) }

// Collectors returns the metrics, for Config.Collectors.
func (t *Timings) Collectors() []prometheus.Collector {
	return []prometheus.Collector{t.queue, t.step}
}
