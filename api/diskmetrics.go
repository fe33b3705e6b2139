package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/engine/diskcache"
)

// diskMetrics returns the metrics of the prefix cache on disk; all are 0 without one.
func diskMetrics(e Engine) []prometheus.Collector {
	const prefix = "ringmaster_disk_cache_"
	counter := func(name, help string, value func(diskcache.Stats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + name, Help: help},
			func() float64 { return float64(value(e.Stats().Disk)) })
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "snapshots", Help: "Sequences kept on disk."},
			func() float64 { return float64(e.Stats().Disk.Entries) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "bytes", Help: "Bytes of the prefix cache on disk."},
			func() float64 { return float64(e.Stats().Disk.Bytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "hangs", Help: "1 while the disk does not respond, so that nothing is saved or restored."},
			func() float64 {
				if e.Stats().Disk.Hangs {
					return 1
				}
				return 0
			}),
		counter("saved_total", "Files written to disk: sequences, and the parts that several share.", func(s diskcache.Stats) uint64 { return s.Saved }),
		counter("saved_bytes_total", "Bytes of sequences written to disk.", func(s diskcache.Stats) uint64 { return s.SavedBytes }),
		counter("hits_total", "Requests that continued a sequence from disk.", func(s diskcache.Stats) uint64 { return s.Hits }),
		counter("hit_tokens_total", "Prompt tokens that were not run because a sequence from disk had them.", func(s diskcache.Stats) uint64 { return s.HitTokens }),
		counter("evicted_total", "Sequences removed from disk to make room for others.", func(s diskcache.Stats) uint64 { return s.Evicted }),
		counter("refused_total", "Files removed because they were damaged or did not match.", func(s diskcache.Stats) uint64 { return s.Refused }),
		counter("errors_total", "Failures of the disk.", func(s diskcache.Stats) uint64 { return s.Errors }),
	}
}
