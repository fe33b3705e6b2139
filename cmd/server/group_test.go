package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/groupplan"
	"ringmaster/internal/cli"
	"ringmaster/internal/settings"
	"ringmaster/internal/testenv"
)

// groupLimit bounds every wait in these tests.
const groupLimit = time.Minute

// start starts the program; the channel receives its result, and out has what it printed by
// then.
func start(ctx context.Context, args ...string) (done chan error, out *bytes.Buffer) {
	root, out := newRoot(), &bytes.Buffer{}
	root.SetOut(out)
	root.SetErr(io.Discard)
	root.SetArgs(append(args, "--log", "error"))
	done = make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	return done, out
}

// rank starts the program as one rank; the channel receives its result.
func rank(t *testing.T, ctx context.Context, coordinator string, number, size int, args ...string) <-chan error {
	group := []string{"--distributed", "--coordinator", coordinator, "--rank", fmt.Sprint(number),
		"--world-size", fmt.Sprint(size), "--threads", "1"}
	if !slices.Contains(args, "--share") { // the default would measure each group for two seconds
		group = append(group, "--share", "experts")
	}
	done, _ := start(ctx, append(args, group...)...)
	return done
}

func await(t *testing.T, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-time.After(groupLimit):
		require.Fail(t, "a rank did not end")
		return nil
	}
}

// requireSameLogits fails unless a group with --reduce exact writes the logits of one rank,
// bit for bit, and its followers end with their leader. all are arguments of every rank.
func requireSameLogits(t *testing.T, size, tokens int, all []string, leader ...string) {
	t.Helper()
	ids := strings.Repeat("11 22 33 44 55 ", tokens/5)
	want := logitsOf(t, ids, "--reduce", "exact")
	at := testenv.LoopbackAddr(t)
	var ends []<-chan error
	for r := 1; r < size; r++ {
		ends = append(ends, rank(t, t.Context(), at, r, size, append([]string{"serve"}, all...)...))
	}
	out := filepath.Join(t.TempDir(), "out")
	args := append([]string{"logits", "--tokens", written(t, ids), "--out", out, "--reduce", "exact"}, all...)
	require.NoError(t, await(t, rank(t, t.Context(), at, 0, size, append(args, leader...)...)))
	got := testenv.ReadFile(t, out)
	require.Equal(t, want, got)
	for _, end := range ends {
		require.NoError(t, await(t, end), "a follower ends with its leader")
	}
}

// TestRowsOnRanks: the rows of a chunk that is long enough are divided, and with --reduce
// exact the logits are those of one rank.
func TestRowsOnRanks(t *testing.T) {
	requireSameLogits(t, 2, 150, nil, "--batch", "80", "--share", "all:2,3")
}

// TestLogitsOnRanks checks that the logits of one rank and of three, with uneven
// shares and in chunks, have the same bits.
func TestLogitsOnRanks(t *testing.T) {
	key := written(t, "a secret of enough bytes")
	requireSameLogits(t, 3, 60, []string{"--cluster-key-file", key, "--cluster-encrypt"},
		"--batch", "17", "--share", "experts:3,1,2", "--verify-model=false")
}

// TestAutoOnRanks: with --reduce exact the logits of a group with --share auto, which is the
// default, are those of one rank, whatever was chosen.
func TestAutoOnRanks(t *testing.T) {
	requireSameLogits(t, 2, 60, nil, "--share", "auto")
	for _, name := range []string{"serve", "logits", "bench", "plan"} {
		c, _, err := newRoot().Find([]string{name})
		require.NoError(t, err)
		require.Equal(t, groupplan.AutoShare, c.Flag("share").DefValue, name)
	}
}

// TestServeOnRanks checks that a group serves, sends traces without texts, and that
// Ctrl-C at a follower ends it.
func TestServeOnRanks(t *testing.T) {
	var mu sync.Mutex
	var traces strings.Builder // as protobuf, whose strings can be read
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, err := io.Copy(&traces, r.Body)
		require.NoError(t, err)
	}))
	defer collector.Close()
	at, listen := testenv.LoopbackAddr(t), testenv.LoopbackAddr(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	follower := rank(t, ctx, at, 1, 2, "serve", "--memory", "90MiB")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	leader := rank(t, t.Context(), at, 0, 2, "serve", "--listen", listen)
	get := func(path string) (int, string) {
		r, err := http.Get("http://" + listen + path)
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { status, _ := get("/readyz"); return status == http.StatusOK }, groupLimit, 10*time.Millisecond)
	r, err := http.Post("http://"+listen+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"messages":[{"role":"user","content":"What is the capital of France?"}],"temperature":0}`))
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode, string(body))
	require.Contains(t, string(body), "Paris")
	require.Regexp(t, `"system_fingerprint":"fp_[0-9a-f]{16}"`, string(body))

	status, metrics := get("/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{"ringmaster_trace_spans_sent_total ", `ringmaster_trace_spans_dropped_total{reason="full"} 0`, "ringmaster_group_up 1", "ringmaster_group_epoch 1", `ringmaster_layer_exchanges_total{layer="5",rank="1"}`,
		`ringmaster_layer_float16_overflows_total{layer="0",rank="0"} 0`, `ringmaster_rank_steps_total{rank="1"}`,
		`ringmaster_exchange_count_total{op="all-reduce",purpose="experts",rank="1"} `, `ringmaster_exchange_waiting_seconds_total{op="all-reduce",purpose="experts",rank="0"} `} {
		require.Contains(t, metrics, want)
	}
	require.Regexp(t, `ringmaster_queue_seconds_count [1-9]`, metrics)
	require.Regexp(t, `ringmaster_step_seconds_count [1-9]`, metrics)
	checkPackaged(t, metrics)
	// The KV caches have what the follower's --memory leaves.
	_, after, found := strings.Cut(metrics, `ringmaster_budget_limit{budget="KV caches (bytes)"} `)
	require.True(t, found)
	var budget float64
	_, err = fmt.Sscan(after, &budget)
	require.NoError(t, err)
	require.Positive(t, budget)
	require.Less(t, budget, float64(90<<20-groupplan.LeastHeap))
	interrupt(cluster.ErrStopAll)
	require.NoError(t, await(t, follower))
	require.NoError(t, await(t, leader))
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"POST /v1/chat/completions", "req_", "parse", "queue", "prefill", "decode"} {
		require.Contains(t, traces.String(), want)
	}
	require.NotContains(t, traces.String(), "Paris")
	require.NotContains(t, traces.String(), "France")
	require.NotContains(t, traces.String(), "/readyz")
}

// TestGroupFails checks that the reason is reported when a group cannot form.
func TestGroupFails(t *testing.T) {
	at := testenv.LoopbackAddr(t)
	follower := rank(t, t.Context(), at, 1, 2, "serve", "--simd", "portable")
	leader := rank(t, t.Context(), at, 0, 2, "bench", "--simd", "auto", "--connect-timeout", "1s")
	if status, err := command(t, "bench", "--simd", "auto", "--prefill", "1", "--decode", "0", "--repeat", "1"); err == nil && !strings.Contains(status, "avx") {
		t.Log("this host has only portable kernels")
	}
	if err := await(t, follower); err != nil {
		require.ErrorContains(t, err, "--simd")
		require.ErrorContains(t, await(t, leader), "rank 1 did not join")
	}
	// Too little memory.
	at = testenv.LoopbackAddr(t)
	follower = rank(t, t.Context(), at, 1, 2, "serve", "--memory", "1MiB")
	require.ErrorContains(t, await(t, rank(t, t.Context(), at, 0, 2, "bench")), "its --memory allows 1.0 MiB")
	require.NoError(t, await(t, follower))
}

func TestGroupFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--world-size 0", `--world-size is "0"`},
		{"--world-size 9", `--world-size is "9"`},
		{"--world-size 2 --rank 2", "--rank is 2; expected 0 to 1"},
		{"--world-size 2", "needs --coordinator"},
		{"--world-size 2 --coordinator here", "--coordinator"},
		{"--world-size 2 --coordinator :9000", "address"},
		{"--world-size 2 --coordinator h:1 --share experts:1", "1 numbers for 2 ranks"},
		{"--world-size 2 --coordinator h:1 --share all:1,-2", "expected experts, all, auto or helper"},
		{"--world-size 3 --coordinator h:1 --share helper", "--share helper is for two ranks"},
		{"--world-size 2 --coordinator h:1 --share helper --stages 2", "--stages and --share helper are two ways"},
		{"--world-size 2 --coordinator h:1 --peer-timeout 0s", "--peer-timeout is"},
		{"--world-size 2 --coordinator 127.0.0.1:1 --cluster-key-file /nonexistent", "/nonexistent"},
		{"--world-size 2 --coordinator h:1 --cluster-encrypt", "--cluster-encrypt needs --cluster-key-file"},
		{"--world-size 2 --coordinator h:1 --cluster-key-file k --cluster-encrypt=maybe", "expected on, off or tcp-only"},
		{"--world-size 2 --coordinator h:1 --cluster-key-file k --cluster-encrypt --transport rdma", "cannot encrypt the data of --transport rdma"},
	} {
		_, err := command(t, append([]string{"bench", "--distributed"}, strings.Fields(c.args)...)...)
		require.ErrorContains(t, err, c.want, c.args)
	}
	_, err := command(t, "bench", "--distributed", "--world-size", "2", "--rank", "1", "--coordinator", "127.0.0.1:1")
	require.ErrorContains(t, err, "start the other ranks with serve")
}

func TestJACCLEnvironment(t *testing.T) {
	matrix := testenv.WriteFile(t, filepath.Join(t.TempDir(), "matrix.json"), `[[null,"rdma_en5"],["rdma_en5",null]]`)
	hosts := testenv.WriteFile(t, filepath.Join(t.TempDir(), "hosts.json"), `{"backend":"ring","hosts":[{},{},{}]}`)
	parse := func(env map[string]string, args ...string) (clusterOptions, error) {
		var o clusterOptions
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.register(f)
		require.NoError(t, f.Parse(args))
		origins := settings.Origins{}
		require.NoError(t, settings.FromEnvironment(f, cli.Prefix, lookup(env), origins))
		return o, o.fromJACCL(f, lookup(env), origins)
	}
	o, err := parse(map[string]string{"MLX_RANK": "1", "JACCL_COORDINATOR": "10.0.0.1:32323", "JACCL_IBV_DEVICES": matrix}, "--distributed")
	require.NoError(t, err)
	require.Equal(t, []any{1, 2, "10.0.0.1:32323"}, []any{o.Rank, o.Size, o.Coordinator})
	o, err = parse(map[string]string{"JACCL_RANK": "2", "MLX_RANK": "1", "RINGMASTER_RANK": "0", "MLX_HOSTFILE": hosts}, "--distributed")
	require.NoError(t, err)
	require.Equal(t, []int{0, 3}, []int{o.Rank, o.Size}, "RINGMASTER_RANK takes precedence")
	o, err = parse(map[string]string{"MLX_RANK": "1"})
	require.NoError(t, err)
	require.Zero(t, o.Rank, "without --distributed they are ignored")
	_, err = parse(map[string]string{"MLX_RANK": "one"}, "--distributed")
	require.ErrorContains(t, err, `MLX_RANK="one"`)
	_, err = parse(map[string]string{"MLX_HOSTFILE": "/nonexistent"}, "--distributed")
	require.ErrorContains(t, err, "/nonexistent")
}
