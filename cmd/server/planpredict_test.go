package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// predictedOf is the prediction of a plan by what and length.
func predictedOf(t *testing.T, all []prediction, what string, n int) prediction {
	t.Helper()
	for _, p := range all {
		if p.What == what && p.N == n {
			return p
		}
	}
	t.Fatalf("no prediction of %s %d in %+v", what, n, all)
	return prediction{}
}

// TestPlanPredicts: predictions are the cost model's for the hosts and the link, are
// above the bound by bytes, and are near it where nothing but reading takes time.
func TestPlanPredicts(t *testing.T) {
	testenv.Need(t, testenv.Full, "predictions against a model traced by hand")
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "m.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	open := decoder.OpenOptions{Context: 1024, MaxTokens: 256, Wire: parallel.F16}
	var m decoder.Decoder
	tracer, err := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) {
		m, err = arch.Open(f, b, open)
		return m, err
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, tracer.Close()) }()
	sizes := m.(interface{ Sizes() parallel.Sizes }).Sizes()
	var micro []bool
	for _, share := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
		p, err := planJSON(t, "--model", path, "--host", "2GiB,10GB/s,0.2TFLOP/s,op=7us", "--host", "2GiB,5GB/s,0.2TFLOP/s,op=7us",
			"--link", "0.5GB/s,40us", "--share", share.String(), "--ctx", "1024", "--max-batch", "256", "--reach", "0.5", "--micro-batches", "auto")
		require.NoError(t, err)
		placement, err := parallel.Place(share, sizes, []float64{1, 1})
		require.NoError(t, err)
		costs := calibrate.Suppose([]calibrate.Host{{Memory: 5e9, Compute: 5e10, Op: 7e-6}, {Memory: 2.5e9, Compute: 5e10, Op: 7e-6}},
			calibrate.Network{Latency: 40e-6, Rate: 0.5e9, Hops: 1})
		e, err := tracer.Expect(t.Context(), placement, costs, calibrate.Work{Rows: 1, Pos: 128})
		require.NoError(t, err)
		got := predictedOf(t, p.Predicted, "decode", 128)
		require.InEpsilon(t, e.Seconds, got.Seconds, 1e-9)
		require.InEpsilon(t, e.Compute[0], got.Compute, 1e-9)
		require.InEpsilon(t, 1/e.Seconds, got.Rate, 1e-9)
		// A prompt of two chunks, each with its rows divided, and in two micro-batches, if
		// that takes less.
		sum, inTwo := 0.0, false
		for at := 0; at < 512; at += 256 {
			least, best := 1e9, placement
			for i, way := range []parallel.Placement{placement, placement.DivideRows(1), placement.MicroBatches(256), placement.DivideRows(1).MicroBatches(256)} {
				if e, err = tracer.Expect(t.Context(), way, costs, calibrate.Work{Rows: 256, Pos: at}); err != nil {
					t.Fatal(err)
				}
				if i == 0 || (share == parallel.ShareAll || !way.DividesRows()) && e.Seconds <= 0.98*least {
					least, best = e.Seconds, way
				}
			}
			sum += least
			inTwo = inTwo || best[0].Micro > 0
		}
		got = predictedOf(t, p.Predicted, "prefill", 512)
		require.Equal(t, inTwo, got.Micro)
		micro = append(micro, inTwo)
		require.InEpsilon(t, sum, got.Seconds, 1e-9)
		require.Equal(t, int64(512*p.Bounds.Wire), got.Least, "two ranks: an all-reduce receives as many bytes as its vector has")
		require.GreaterOrEqual(t, got.Received, got.Least)
		require.Len(t, p.Predicted, 2, "no prompt of 2048 tokens in a context of 1024")
	}
	require.Contains(t, micro, true, "micro-batches pay somewhere")
	for preset, hosts := range map[string]string{"v4-flash": ",x2", "v3": ",x4"} {
		p, err := planJSON(t, "--preset", preset, "--host", "512GiB,800GB/s,1000000TFLOP/s,op=0s"+hosts, "--link", "900000GB/s,1ns", "--share", "all", "--reach", "1")
		require.NoError(t, err)
		got := predictedOf(t, p.Predicted, "decode", 128)
		// The bound counts a rank's expected share of experts, the prediction the busiest rank.
		require.Less(t, got.Rate, p.Bounds.Decode, preset)
		require.Greater(t, got.Rate, 0.6*p.Bounds.Decode, preset)
	}
	p, err := planJSON(t, "--model", path, "--host", "2GiB,10GB/s,x2", "--ctx", "1024")
	require.NoError(t, err)
	require.Nil(t, p.Predicted, "the speed is unknown")
}

// TestPlanTable: a table has a row for each group and share, a group that is too small
// says so, and the rates are those of plans.
func TestPlanTable(t *testing.T) {
	testenv.Need(t, testenv.Full, "the table of predictions")
	t.Setenv("TMPDIR", t.TempDir())
	out, err := command(t, "plan", "--preset", "v2-lite", "--host", "12GiB,800GB/s,20TFLOP/s", "--link", "10g", "--table")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 9, out)
	columns := strings.Count(lines[0], "|")
	for _, l := range lines {
		require.Equal(t, columns, strings.Count(l, "|"), l)
	}
	require.Contains(t, lines[2], "| 1 | experts | does not fit |")
	fits := 2
	for strings.Contains(lines[fits], "does not fit") {
		fits++
	}
	require.Equal(t, 3, strings.Count(lines[fits], "| 1.00 |"), "the smallest group that fits is the base: %s", lines[fits])
	require.Contains(t, lines[8], "| 8 | all |")
	p, err := planJSON(t, "--preset", "v2-lite", "--host", "12GiB,800GB/s,20TFLOP/s,x8", "--link", "10g", "--share", "all")
	require.NoError(t, err)
	for _, got := range p.Predicted {
		require.Contains(t, lines[8], tableNumber(got.Rate))
	}
	for args, want := range map[string]string{
		"--host 128GiB,800GB/s":                                 "--table needs one --host",
		"--host 128GiB,800GB/s,20TFLOP/s,x2":                    "--table needs one --host",
		"--host 128GiB,800GB/s,20TFLOP/s --shares memory":       "no --shares",
		"--host 512GiB,800GB/s,20TFLOP/s --reach 2":             `--reach is "2"`,
		"--host 512GiB,800GB/s,20TFLOP/s --reach NaN":           `--reach is "NaN"`,
		"--host 128GiB,800GB/s,20TFLOP/s --link 3GB/s,20":       `--link is "3GB/s,20"`,
		"--host 128GiB,800GB/s,20TFLOP/s --link 3GB/s,-1us":     `--link is "3GB/s,-1us"`,
		"--host 128GiB,800GB/s,NaNTFLOP/s":                      `"NaNTFLOP/s"; expected`,
		"--host 128GiB,800GB/s,20TFLOP/s,op=-1us --link 3GB/s":  `"op=-1us"; expected`,
		"--host 128GiB,800GB/s,20TFLOP/s,op=fast --link rdma":   `"op=fast"; expected`,
		"--host 128GiB,800GB/s,20TFLOP/s --link roce-25g,20us ": `--link is "roce-25g,20us"`,
	} {
		_, err := command(t, append([]string{"plan", "--preset", "v2-lite", "--table"}, strings.Fields(args)...)...)
		require.ErrorContains(t, err, want, args)
		require.Equal(t, 2, exitCode(err), args)
	}
}

// TestNetwork: more Macs than one has ports make a ring.
func TestNetwork(t *testing.T) {
	rdma, err := parseLink("rdma")
	require.NoError(t, err)
	hosts := func(values ...string) []planHost {
		hosts, err := parseHosts(values)
		require.NoError(t, err)
		return hosts
	}
	require.Equal(t, calibrate.Network{Latency: 10e-6, Rate: 6e9, Hops: 1}, rdma.network(hosts("64GiB,x7")))
	require.Equal(t, calibrate.Network{Latency: 10e-6, Rate: 6e9, Hops: 4}, rdma.network(hosts("64GiB,x8")))
	other, err := parseLink("3GB/s,20us")
	require.NoError(t, err)
	require.Equal(t, calibrate.Network{Latency: 20e-6, Rate: 3e9, Hops: 1}, other.network(hosts("64GiB,x8")))
	// The slowest GPU decides how long an exchange waits; what is given goes before a Mac's default.
	for values, wait := range map[string]float64{"64GiB,mac,x2": macWait, "64GiB;64GiB,mac": macWait, "64GiB,wait=30us;64GiB,wait=70us": 70e-6,
		"64GiB,mac,wait=0s,x2": 0, "64GiB,mac,wait=15us,x2": 15e-6} {
		require.InDelta(t, wait, other.network(hosts(strings.Split(values, ";")...)).Wait, 1e-12, values)
	}
}

// TestPlanCountsWaits: a Mac's GPU makes every exchange wait, so that a second Mac brings
// decode next to nothing; without the wait it would.
func TestPlanCountsWaits(t *testing.T) {
	testenv.Need(t, testenv.Full, "predictions of groups of Macs with and without waits")
	rate := func(host string, share string) float64 {
		p, err := planJSON(t, "--preset", "v4-flash", "--host", host, "--link", "rdma", "--share", share)
		require.NoError(t, err)
		return predictedOf(t, p.Predicted, "decode", 128).Rate
	}
	const mac = "512GiB,819GB/s,28TFLOP/s,mac"
	one := rate(mac, "experts")
	require.InEpsilon(t, 1.02, rate(mac+",x2", "experts")/one, 0.02)
	require.InEpsilon(t, 0.98, rate(mac+",x2", "all")/one, 0.02)
	require.InEpsilon(t, 1.13, rate(mac+",wait=0s,x2", "experts")/one, 0.02)
	require.InEpsilon(t, 1.40, rate(mac+",wait=0s,x2", "all")/one, 0.02)
	out, err := command(t, "plan", "--preset", "v4-flash", "--host", mac+",x2", "--link", "rdma")
	require.NoError(t, err)
	require.Contains(t, out, "each exchange waits 100 us")
}
