package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ringmaster/engine"
)

// metrics holds the handler's own metrics and implements run.Observer. Each handler has
// its own registry.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	inFlight   prometheus.Gauge
	limited    prometheus.Counter
	prompt     prometheus.Counter
	cached     prometheus.Counter
	completion prometheus.Counter
	firstToken prometheus.Histogram
	perToken   prometheus.Histogram
}

func newMetrics(e Engine, bodies *budget, texts *places, more []prometheus.Collector) *metrics {
	r := prometheus.NewRegistry()
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, from, to float64) prometheus.Histogram {
		h := prometheus.NewHistogram(times(name, help, from, to))
		r.MustRegister(h)
		return h
	}
	m := &metrics{
		registry: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringmaster_http_requests_total",
			Help: "Completed requests. Status 499: the client disconnected."}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ringmaster_http_request_seconds",
			Help: "Duration of requests, including streaming.", Buckets: prometheus.ExponentialBucketsRange(0.001, 600, 16)}, []string{"route"}),
		inFlight:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "ringmaster_http_requests_in_flight", Help: "Requests in progress."}),
		limited:    counter("ringmaster_http_rate_limited_total", "Requests refused because a limit of their API key was used up."),
		prompt:     counter("ringmaster_prompt_tokens_total", "Prompt tokens."),
		cached:     counter("ringmaster_prompt_tokens_cached_total", "Prompt tokens found in the prefix cache."),
		completion: counter("ringmaster_completion_tokens_total", "Generated tokens."),
		firstToken: histogram("ringmaster_first_token_seconds", "Time from the submission of a request to its first token.", 0.001, 600),
		perToken:   histogram("ringmaster_token_seconds", "Time between two consecutive tokens of an answer.", 0.0005, 30),
	}
	gauge := func(name, help string, value func(engine.Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(e.Stats()) })
	}
	hits := func(kind string, n func(engine.Hits) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_prefix_cache_hits_total", ConstLabels: prometheus.Labels{"kind": kind},
			Help: "Requests that computed only a part of their prompt, because they continued a kept sequence, forked a kept or running one, or restored one from disk."},
			func() float64 { return float64(n(e.Stats().Hits)) })
	}
	dropped := func(reason string, n func(engine.Stats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_prefix_cache_dropped_total", ConstLabels: prometheus.Labels{"reason": reason},
			Help: "Entries that the prefix cache dropped for lack of memory, for lack of places, or because of their age."},
			func() float64 { return float64(n(e.Stats())) })
	}
	r.MustRegister(m.requests, m.seconds, m.inFlight,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringmaster_http_body_bytes", Help: "Bytes of the request bodies being received and parsed; a budget limits them."},
			func() float64 { used, _ := bodies.usage(); return float64(used) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_http_body_refused_total", Help: "Requests refused because the budget for bodies was used up."},
			func() float64 { _, refused := bodies.usage(); return float64(refused) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringmaster_http_texts_in_flight", Help: "Requests to /tokenize and /detokenize in progress."},
			func() float64 { used, _ := texts.usage(); return float64(used) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_http_texts_refused_total", Help: "Requests to /tokenize and /detokenize refused because all places were taken."},
			func() float64 { _, refused := texts.usage(); return float64(refused) }),
		gauge("ringmaster_engine_queued", "Requests waiting in the queue.", func(l engine.Stats) float64 { return float64(l.Queued) }),
		gauge("ringmaster_prefix_cache_entries", "Entries of the prefix cache: sequences of finished requests.", func(l engine.Stats) float64 { return float64(l.CacheEntries) }),
		gauge("ringmaster_engine_active", "Requests being processed.", func(l engine.Stats) float64 { return float64(l.Active) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_engine_steps_total", Help: "Forward passes of the model."},
			func() float64 { return float64(e.Stats().Steps) }),
		hits("continued", func(h engine.Hits) uint64 { return h.Continued }), hits("forked", func(h engine.Hits) uint64 { return h.Forked }), hits("replayed", func(h engine.Hits) uint64 { return h.Replayed }),
		hits("restored", func(h engine.Hits) uint64 { return h.Restored }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_prefix_cache_waited_total", Help: "Requests that waited for the prefill of another one with the same prefix."},
			func() float64 { return float64(e.Stats().Hits.Waited) }),
		dropped("memory", func(l engine.Stats) uint64 { return l.Evicted }), dropped("places", func(l engine.Stats) uint64 { return l.Crowded }),
		dropped("age", func(l engine.Stats) uint64 { return l.Expired }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_prefix_cache_evicted_tokens_total", Help: "Tokens of sequences that the prefix cache evicted for lack of places or memory."},
			func() float64 { return float64(e.Stats().EvictedTokens) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_engine_non_finite_requests_total", Help: "Requests that ended because a logit was NaN or infinite."},
			func() float64 { return float64(e.Stats().NonFinite) }),
		gauge("ringmaster_engine_ready", "1 if the engine can produce tokens now, else 0.", func(engine.Stats) float64 {
			if e.Ready() != nil {
				return 0
			}
			return 1
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_engine_decode_rows_total", Help: "Sequences that decoded, summed over steps; generated tokens for each of them are the tokens of a step."},
			func() float64 { return float64(e.Stats().DecodeRows) }),
		draftMetrics{e},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(diskMetrics(e)...)
	r.MustRegister(more...)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) count(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// FirstToken records the time from the submission of a job to a first token.
func (m *metrics) FirstToken(seconds float64) { m.firstToken.Observe(seconds) }

// Token records the time between two tokens of an answer.
func (m *metrics) Token(seconds float64) { m.perToken.Observe(seconds) }

// Answer counts the tokens of an answer that has ended.
func (m *metrics) Answer(u engine.Usage) {
	m.prompt.Add(float64(u.Prompt))
	m.cached.Add(float64(u.Cached))
	m.completion.Add(float64(u.Completion))
}
