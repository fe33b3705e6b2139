//go:build linux

// Package load holds the real server process to its memory plan: under a mixed load,
// and at five times what it can take. It needs nothing but this repository.
//
//	go test ./tests/load -run TestFiveTimesCapacity -load 10m -timeout 20m -v
package load

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/cluster/harness"
)

var duration = flag.Duration("load", 0, "how long TestFiveTimesCapacity runs; 0 is until enough requests have been answered and refused")

// patience bounds every wait; none gets near it.
const patience = 3 * time.Minute

// server is a running program.
type server struct {
	*harness.Process
	*client
	atMost int64 // of its plan, in bytes
}

var atMost = regexp.MustCompile(`(?m)^ +all together +([0-9.]+) ([KMG]iB)`)

// size is bytes as the plan prints them, rounded up to the last digit.
func size(t *testing.T, number, unit string) int64 {
	var v float64
	_, err := fmt.Sscan(number, &v)
	require.NoError(t, err)
	return int64((v + 0.05) * float64(map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]))
}

func start(t *testing.T, program string, args ...string) *server {
	t.Helper()
	addr := testenv.LoopbackAddr(t)
	p := harness.Run(t, nil, append([]string{program, "serve", "--listen", addr, "--threads", "2", "--log", "warn"}, args...)...)
	s := &server{Process: p, client: newClient(addr)}
	ctx := testenv.Within(t, patience)
	// The plan is printed before the server is ready, but its copy to the log may
	// come later than the first answer.
	var plan []string
	require.NoError(t, harness.Until(ctx, "the server's plan, and the server to be ready", func() (bool, string) {
		plan = atMost.FindStringSubmatch(p.Log.String())
		ready, _ := s.Ready(ctx)
		return !p.Running() || plan != nil && ready, p.Log.String()
	}))
	require.True(t, p.Running(), p.Log.String())
	s.atMost = size(t, plan[1], plan[2])
	return s
}

// watch samples the memory that is the process's own until stop is called, which
// returns the most that was seen: by the samples, and by the kernel's peak less the
// pages of files.
func (s *server) watch() (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var most atomic.Int64
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			most.Store(max(most.Load(), s.Memory("RssAnon")))
			<-tick.C
		}
	})
	return func() int64 {
		cancel()
		done.Wait()
		return max(most.Load(), s.Memory("VmHWM")-s.Memory("RssFile")-s.Memory("RssShmem"))
	}
}

// TestTheProcessStaysWithinItsPlan: with every place taken, sessions that come and
// go, long prompts and bodies, the process's own memory stays below the last line
// of its plan, for the built-in model and for a synthetic one.
func TestTheProcessStaysWithinItsPlan(t *testing.T) {
	program := testenv.Program(t)
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	tiny := t.TempDir() + "/tiny.gguf"
	_, err = c.WriteFile(tiny)
	require.NoError(t, err)
	for name, model := range map[string][]string{"built-in": {"--ctx", "4096"}, "tiny": {"--model", tiny, "--ctx", "8192"}} {
		t.Run(name, func(t *testing.T) {
			if name != "tiny" {
				testenv.Need(t, testenv.Full, "the memory of the built-in model")
			}
			s := start(t, program, append(model, "--max-active", "4", "--cache-entries", "4", "--queue", "8",
				"--max-body", "1048576")...)
			stop := s.watch()
			var all sync.WaitGroup
			var answered atomic.Int64
			for i := range 8 {
				all.Go(func() {
					for j := range 3 {
						r := request{prompt: 200 + 150*((i+j)%8), max: 1 + 7*(i%3)}
						if out := s.complete(t.Context(), r); out.status == 200 {
							answered.Add(1)
						}
					}
				})
			}
			all.Wait()
			most := stop()
			t.Logf("%d MiB of at most %d", most>>20, s.atMost>>20)
			require.EqualValues(t, 24, answered.Load(), s.Log.String())
			require.Less(t, most, s.atMost)
			require.Positive(t, s.metric(t, `ringmaster_budget_used{budget="prefix cache (entries)"}`))
		})
	}
}

// TestFiveTimesCapacity: five times as many clients as the server has places ask
// without a pause but the one after a refusal. Half of the requests share a system
// prompt, so that some begin with forks. The process stays below --memory, answers
// what it admits, refuses the rest by the documented statuses, and serves normally
// afterwards.
func TestFiveTimesCapacity(t *testing.T) {
	const active, queue = 4, 4
	// Memory for about four sequences of full length beside what is fixed.
	s := start(t, testenv.Program(t), "--max-active", fmt.Sprint(active), "--queue", fmt.Sprint(queue), "--cache-entries", "4",
		"--max-body", "1048576", "--ctx", "4096", "--memory", "120MiB")
	limit := int64(120 << 20)
	require.LessOrEqual(t, s.atMost, limit+limit/1000, "rounding")
	budget := s.metric(t, `ringmaster_budget_limit{budget="KV caches (bytes)"}`)
	goroutines, files := s.metric(t, "go_goroutines"), s.metric(t, `ringmaster_budget_used{budget="files"}`)

	answers := 25
	if testenv.Rest(t, testenv.Full, "eight times as many answers") {
		answers = 200
	}
	stop := s.watch()
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tally := &tally{counts: map[string]int{}}
	var all sync.WaitGroup
	for i := range 5 * (active + queue) {
		all.Go(func() { s.hammer(ctx, uint64(i), tally) })
	}
	enough := func() (bool, string) {
		answered, refused := tally.totals()
		if *duration > 0 {
			return time.Since(began) >= *duration, ""
		}
		return answered >= answers && refused >= 5*answers, fmt.Sprintf("%d answered, %d refused", answered, refused)
	}
	limited, end := context.WithTimeout(t.Context(), patience+*duration)
	defer end()
	require.NoError(t, harness.Until(limited, "enough answers and refusals", func() (bool, string) {
		if !s.Running() {
			return true, ""
		}
		return enough()
	}))
	require.True(t, s.Running(), s.Log.String())
	used := s.metric(t, `ringmaster_budget_used{budget="KV caches (bytes)"}`)
	reused := map[string]float64{}
	for _, kind := range []string{"continued", "forked"} {
		reused[kind] = s.metric(t, fmt.Sprintf(`ringmaster_prefix_cache_hits_total{kind=%q}`, kind))
	}
	evicted := s.metric(t, `ringmaster_prefix_cache_dropped_total{reason="memory"}`)
	cancel()
	all.Wait()
	after := time.Now()
	// The server learns from their connections that the clients have left.
	served := harness.Until(limited, "an answer after the load", func() (bool, string) {
		out := s.complete(t.Context(), request{prompt: 20, max: 2})
		return out.status == 200, out.code
	})
	again := time.Since(after)

	answered, refused := tally.totals()
	most := stop()
	slices.Sort(tally.refusals)
	t.Logf("%v: %d answered, %d refused, %v; refusals: median %v, 99 of 100 within %v, worst %v; %.1f MiB of %d; KV caches %.1f of %.1f MiB; prompts reused: %v; %v entries evicted; the next answer after %v",
		time.Since(began).Round(time.Second), answered, refused, tally.counts, tally.refusals[len(tally.refusals)/2], tally.refusals[len(tally.refusals)*99/100], tally.refusals[len(tally.refusals)-1],
		float64(most)/(1<<20), limit>>20, used/(1<<20), budget/(1<<20), reused, evicted, again.Round(time.Millisecond))
	require.NoError(t, served)
	require.Empty(t, tally.wrong)
	require.Less(t, most, limit)
	require.LessOrEqual(t, used, budget)
	require.Positive(t, reused["forked"], "the load does not reach forks")
	require.NoError(t, harness.Until(limited, "connections and goroutines to end", func() (bool, string) {
		g, f := s.metric(t, "go_goroutines"), s.metric(t, `ringmaster_budget_used{budget="files"}`)
		return g <= goroutines+8 && f <= files+8, fmt.Sprintf("%v goroutines, before %v; %v files, before %v", g, goroutines, f, files)
	}))
}

// TestLargeBodiesAtOnce: while bodies of 32 MiB with 200 tools arrive, in every dialect and
// twelve at once, the process stays within its plan; each is answered, or refused
// by a documented status; and it serves normally afterwards.
func TestLargeBodiesAtOnce(t *testing.T) {
	testenv.Need(t, testenv.Full, "bodies of 32 MiB by the dozen")
	s := start(t, testenv.Program(t))
	bodies := apitest.Large(32<<20, false)
	for path, body := range apitest.Large(32<<20, true) {
		bodies[path+"?shown"] = body
	}
	paths := slices.Sorted(maps.Keys(bodies))
	stop := s.watch()
	var mu sync.Mutex
	counts := map[int]int{}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for j := range 3 {
				path := paths[(3*i+j)%len(paths)]
				body := bodies[path]
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				resp, err := s.http.Do(r)
				status := 0
				if err == nil {
					status = resp.StatusCode
					_ = resp.Body.Close()
				} else {
					t.Log(path, err)
				}
				mu.Lock()
				counts[status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	most := stop()
	t.Logf("%v; %d MiB of at most %d", counts, most>>20, s.atMost>>20)
	require.True(t, s.Running(), s.Log.String())
	require.Equal(t, 12*3, counts[200]+counts[400]+counts[429], "%v", counts) // which of them depends on who came first
	require.Positive(t, counts[200]+counts[400], "some were read")
	require.Less(t, most, s.atMost)
	alone := map[int]int{}
	for _, path := range paths {
		resp, err := s.http.Post(s.base+path, "application/json", strings.NewReader(bodies[path]))
		require.NoError(t, err, path)
		require.NoError(t, resp.Body.Close())
		alone[resp.StatusCode]++
	}
	require.Positive(t, alone[200], "%v", alone)
	require.Positive(t, alone[400], "%v", alone)
	require.Equal(t, len(paths), alone[200]+alone[400], "%v", alone)
	require.Equal(t, 200, s.complete(t.Context(), request{prompt: 20, max: 2}).status)
}
