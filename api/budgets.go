package api

import "github.com/prometheus/client_golang/prometheus"

// Budget is a bounded resource. /metrics shows all of them with the name as label:
// ringmaster_budget_limit, ringmaster_budget_used and ringmaster_budget_refused_total.
// docs/operations.md has the same table; a test compares the two.
type Budget struct {
	Name    string // of the resource, with its unit
	Set     string // the flag that sets the limit, or what else does
	Refusal string // what happens beyond the limit

	Limit   func() float64 // 0: none
	Used    func() float64 // nil for a limit of each request
	Refused func() float64 // requests refused since the start; nil if not counted
}

// Budgets returns the budgets of a handler with a configuration, including
// Config.Budgets.
func Budgets(c Config) []Budget { return newServer(c).budgets() }

// budgets returns the table.
func (s *server) budgets() []Budget {
	constant := func(n int64) func() float64 { return func() float64 { return float64(n) } }
	counted := func(n func() uint64) func() float64 { return func() float64 { return float64(n()) } }
	kept := func(name, set string, bytes func() (used, limit int64)) Budget {
		return Budget{
			Name: name, Set: set, Refusal: "the least recently used are dropped",
			Limit: func() float64 { _, limit := bytes(); return float64(limit) }, Used: func() float64 { used, _ := bytes(); return float64(used) },
		}
	}
	return append([]Budget{
		{
			Name: "bodies (bytes)", Set: "twice `--max-body`", Refusal: "429 `server_busy`",
			Limit: constant(s.BodyBudget), Used: func() float64 { used, _ := s.bodies.usage(); return float64(used) },
			Refused: counted(func() uint64 { _, n := s.bodies.usage(); return n }),
		},
		{Name: "body of one request (bytes)", Set: "`--max-body`", Refusal: "413 `request_too_large`", Limit: constant(s.MaxBody)},
		{Name: "messages of one request", Set: "fixed", Refusal: "400 `invalid_value`", Limit: constant(int64(s.MaxMessages))},
		{
			Name: "tokenize and detokenize requests", Set: "`--max-active` + `--queue`", Refusal: "429 `server_busy`",
			Limit: constant(int64(s.MaxTexts)), Used: func() float64 { used, _ := s.texts.usage(); return float64(used) },
			Refused: counted(func() uint64 { _, n := s.texts.usage(); return n }),
		},
		{
			Name: "texts of Markdown being rendered", Set: "fixed: 2 at a time, 64 wait", Refusal: "429 `server_busy`",
			Limit: constant(maxRenders + waitingRenders), Used: func() float64 { used, _ := s.renders.usage(); return float64(used) },
			Refused: counted(func() uint64 { _, n := s.renders.usage(); return n }),
		},
		kept("grammars of constraints (bytes)", "96 MiB, or a sixteenth of `--memory`", s.service.Grammars.Bytes),
		kept("answers with calls (bytes)", "fixed", s.service.Replays.Bytes),
		{
			Name: "sequences that run", Set: "`--max-active`", Refusal: "waits in the queue",
			Limit: func() float64 { return float64(s.Engine.Stats().MaxActive) }, Used: func() float64 { return float64(s.Engine.Stats().Active) },
		},
		{
			Name: "requests that wait", Set: "`--queue`", Refusal: "429 `server_busy`",
			Limit: func() float64 { return float64(s.Engine.Stats().MaxQueued) }, Used: func() float64 { return float64(s.Engine.Stats().Queued) },
			Refused: func() float64 { return float64(s.Engine.Stats().Refused) },
		},
		{
			Name: "prefix cache (entries)", Set: "`--cache-entries`, `--cache-timeout`", Refusal: "the least valuable is dropped",
			Limit: func() float64 { return float64(s.Engine.Stats().MaxCacheEntries) }, Used: func() float64 { return float64(s.Engine.Stats().CacheEntries) },
		},
		{
			Name: "KV caches (bytes)", Set: "what `--memory` leaves", Refusal: "entries of the prefix cache are dropped, then requests wait; 503 `out_of_memory` for an answer that cannot grow, 400 `exceeds_memory` for what can never fit",
			Limit: func() float64 { return float64(s.Engine.Stats().MemoryBudget) }, Used: func() float64 { return float64(s.Engine.Stats().Memory) },
			Refused: func() float64 { return float64(s.Engine.Stats().NoMemory) },
		},
		{
			Name: "prefix cache on disk (bytes)", Set: "`--cache-dir`", Refusal: "the least valuable is removed",
			Limit: func() float64 { return float64(s.Engine.Stats().Disk.Budget) }, Used: func() float64 { return float64(s.Engine.Stats().Disk.Bytes) },
		},
	}, s.Budgets...)
}

// budgetMetrics exposes budgets.
type budgetMetrics struct {
	list                 []Budget
	limit, used, refused *prometheus.Desc
}

func newBudgetMetrics(list []Budget) *budgetMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("ringmaster_budget_"+name, help, []string{"budget"}, nil)
	}
	return &budgetMetrics{list, desc("limit", "Limit of a resource; none if 0."), desc("used", "Use of a resource."),
		desc("refused_total", "Requests or connections refused because a resource was used up.")}
}

// Describe implements prometheus.Collector.
func (m *budgetMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.limit
	out <- m.used
	out <- m.refused
}

// Collect implements prometheus.Collector.
func (m *budgetMetrics) Collect(out chan<- prometheus.Metric) {
	for _, b := range m.list {
		out <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, b.Limit(), b.Name)
		if b.Used != nil {
			out <- prometheus.MustNewConstMetric(m.used, prometheus.GaugeValue, b.Used(), b.Name)
		}
		if b.Refused != nil {
			out <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, b.Refused(), b.Name)
		}
	}
}
