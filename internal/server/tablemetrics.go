package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/model"
)

// tableMetrics count the rows of tables on disk that this rank's steps needed; nil for a
// model without tables.
func tableMetrics(m model.Model) []prometheus.Collector {
	tabled, ok := m.(interface {
		TableRows() (kept, read uint64, ok bool)
	})
	if !ok {
		return nil
	}
	if _, _, ok := tabled.TableRows(); !ok {
		return nil
	}
	counter := func(from string, count func() uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_table_rows_total", ConstLabels: prometheus.Labels{"from": from},
			Help: "Rows of tables (engram) that steps took from memory or read from disk."}, func() float64 { return float64(count()) })
	}
	return []prometheus.Collector{
		counter("memory", func() uint64 { kept, _, _ := tabled.TableRows(); return kept }),
		counter("disk", func() uint64 { _, read, _ := tabled.TableRows(); return read }),
	}
}
