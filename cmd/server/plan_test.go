package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf/gguftest"
	"ringmaster/groupplan"
	"ringmaster/internal/forecast"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// planJSON runs plan and reads its JSON.
func planJSON(t *testing.T, args ...string) (p struct {
	forecast.Plan
	Further *forecast.Plan
}, err error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	out, err := command(t, append([]string{"plan", "--json"}, args...)...)
	if exitCode(err) == 2 {
		return p, err
	}
	require.NoError(t, json.Unmarshal([]byte(out), &p), "%v: %s", err, out)
	left, rerr := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, rerr)
	require.Empty(t, left, "the shape is removed")
	return p, err
}

// TestPlanPresets: every preset's shape can be planned, and its routed experts are
// divided so that memory and bytes for a token of all ranks add up to those of one.
func TestPlanPresets(t *testing.T) {
	all := testenv.Rest(t, testenv.Full, "seven of eight presets")
	for i, preset := range forecast.PresetNames() {
		if i%8 != 0 && !all {
			continue
		}
		one, err := planJSON(t, "--preset", preset, "--host", "4096GiB,1000GB/s")
		require.NoError(t, err)
		require.True(t, one.Fits)
		require.Equal(t, one.Limit, one.Context, "memory enough for the whole context")
		require.Zero(t, one.Bounds.Wire)
		require.InDelta(t, 1e12/float64(one.Bounds.Bytes[0]), one.Bounds.Decode, 0.01)
		require.Less(t, one.Bounds.Bytes[0], one.Weights, "a token reads a part of the experts")

		two, err := planJSON(t, "--preset", preset, "--host", "4096GiB,1000GB/s,x2", "--link", "400g")
		require.NoError(t, err)
		require.Equal(t, one.Ranks[0].Experts.Len(), two.Ranks[0].Experts.Len()+two.Ranks[1].Experts.Len())
		require.Greater(t, two.Bounds.Decode, one.Bounds.Decode)
		require.Less(t, two.Ranks[0].Resident, one.Ranks[0].Resident)
	}
}

// TestPlanDecides: what fits and what does not, shares by memory, what a further host
// brings, and that the bound follows the slower of memory and link.
func TestPlanDecides(t *testing.T) {
	p, err := planJSON(t, "--preset", "v4-flash", "--host", "128GiB,546GB/s,mac", "--host", "128GiB,546GB/s,mac")
	require.NoError(t, err)
	require.Equal(t, int64(96<<30), p.Ranks[0].Offer, "three quarters of a Mac's memory")
	require.Equal(t, p.Ranks[0].Offer-p.Ranks[0].Resident, p.Ranks[0].Free)
	require.Positive(t, p.Ranks[0].Free)
	require.NotNil(t, p.Further)
	require.GreaterOrEqual(t, p.Further.Caches, p.Caches)
	fast := p.Bounds.Decode
	p, err = planJSON(t, "--preset", "v4-flash", "--host", "128GiB,546GB/s,mac,x2", "--link", "0.001GB/s")
	require.NoError(t, err)
	require.InDelta(t, float64(p.Bounds.Wire)/1e6, 1/p.Bounds.Decode-1/fast, 0.01)

	p, err = planJSON(t, "--preset", "v4-flash", "--host", "128GiB,mac")
	require.Equal(t, 4, exitCode(err))
	require.ErrorContains(t, err, "it does not fit: ")
	require.False(t, p.Fits)
	require.True(t, p.Further.Fits, "two of them hold it")
	require.Len(t, p.Further.Ranks, 2)

	_, err = planJSON(t, "--preset", "v4-flash", "--host", "256GiB", "--host", "32GiB")
	require.Equal(t, 4, exitCode(err), "an even division")
	p, err = planJSON(t, "--preset", "v4-flash", "--host", "256GiB", "--host", "32GiB", "--share", "experts:memory")
	require.NoError(t, err)
	require.Greater(t, p.Ranks[0].Experts.Len(), 10*p.Ranks[1].Experts.Len())
	require.Zero(t, p.Bounds.Decode, "no rates are known")
	_, err = planJSON(t, "--preset", "k2", "--host", "16GiB")
	require.Equal(t, 4, exitCode(err), "no eight of them hold it")
}

// TestPlanOfFile plans a true file, as text too, with both shares.
func TestPlanOfFile(t *testing.T) {
	path := tinyModel(t, nil)
	p, err := planJSON(t, "--model", path, "--host", "2GiB,10GB/s,threads=2,x2", "--share", "all", "--ctx", "100")
	require.NoError(t, err)
	require.Equal(t, 100, p.Context)
	experts, err := planJSON(t, "--model", path, "--host", "2GiB,10GB/s,threads=2,x2", "--ctx", "100")
	require.NoError(t, err)
	require.Equal(t, 2*experts.Bounds.Wire, p.Bounds.Wire, "two exchanges a layer")
	out, err := command(t, "plan", "--model", path, "--host", "2GiB,10GB/s,offer=1GiB")
	require.NoError(t, err)
	for _, want := range []string{"it fits: context of", "as given", "decode of one sequence: at most", "no prediction without", "with 2 hosts"} {
		require.Contains(t, out, want)
	}
	out, err = command(t, "plan", "--preset", "v3", "--host", "16GiB")
	require.Equal(t, 4, exitCode(err))
	require.Contains(t, out, "it does not fit: rank 0 needs")
	require.Contains(t, out, "eight hosts like these do not hold it either")
}

// TestPlanAuto: by default plan chooses by the rates of the hosts and says in one line what
// it expects of both choices and of one host; without a rate it says why it divides the
// experts.
func TestPlanAuto(t *testing.T) {
	path := tinyModel(t, nil)
	plan := func(host, link string) string {
		out, err := command(t, "plan", "--model", path, "--host", host, "--link", link, "--ctx", "1024", "--max-batch", "256")
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(out, "read for a token"), "one table")
		return out
	}
	const host = "2GiB,0.01GB/s,0.1TFLOP/s,op=0s,x2"
	out := plan(host, "9GB/s,1us")
	require.Regexp(t, `(?m)^ +experts +1024 .* t/s +\d+\.\d t/s *\n +all +1024 .* t/s *\n *auto \(all\) +1024 .* t/s *\n +stages 2 +1024 .* t/s *\nrecommended: --share auto, which takes all: a prompt of 512 tokens and 128 of an answer in 0\.\d\d times the time of experts\n`, out)
	require.Contains(t, out, "--share auto chose all; 2 ranks: ")
	require.Contains(t, out, "; with experts ")
	require.Contains(t, out, "x of one (prefill ")
	require.NotContains(t, out, "slower than")
	out = plan(host, "0.00001GB/s,1s")
	require.Contains(t, out, "--share auto chose stages; 2 ranks: ", "which send least")
	require.Contains(t, out, "; slower than rank 0 alone: prefill by ")
	require.Regexp(t, `recommended: --share auto, which takes stages: .*; one host is faster if it holds the model: the group is slower than rank 0 alone: prefill by `, out)
	out = plan("2GiB,1GB/s,x2", "1g")
	require.Contains(t, out, "--share auto divides experts: what is faster is not known without the rate of each memory and the speed of each host")
	require.Contains(t, out, "recommended: --share auto, which measures the group when it forms")
	require.Contains(t, out, "unknown")
	p, err := planJSON(t, "--model", path, "--host", host, "--link", "9GB/s,1us", "--ctx", "1024", "--max-batch", "256")
	require.NoError(t, err)
	require.Equal(t, "all", p.Share)
	require.Contains(t, p.Expected, "--share auto chose all; 2 ranks: ")
	shape, err := command(t, "plan", "--preset", "v4-flash", "--host", "128GB,546GB/s,14TFLOP/s,mac,x2", "--link", "rdma")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^2 ranks: \d+\.\d t/s expected`, shape, "experts does not fit, so there was no choice")
	require.Contains(t, shape, "recommended: --share auto, which takes all, because the other does not fit")
	require.NotContains(t, shape, "chose experts")
	given, err := planJSON(t, "--model", path, "--host", host, "--link", "9GB/s,1us", "--ctx", "1024", "--max-batch", "256", "--share", "all")
	require.NoError(t, err)
	require.Equal(t, p.Predicted, given.Predicted, "the prediction is that of the choice")
	require.Equal(t, p.Bounds, given.Bounds)
	require.NotContains(t, given.Expected, "auto")
}

// TestPlanCountsSums: a dense FFN has a sum only where it is divided, which
// the blocks of V2-Lite's weights do not allow.
func TestPlanCountsSums(t *testing.T) {
	for _, c := range []struct {
		preset, share string
		sums, width   int
	}{{"v3", "experts", 58, 7168}, {"v3", "all", 122, 7168}, {"v2-lite", "experts", 26, 2048}, {"v2-lite", "all", 53, 2048}} {
		p, err := planJSON(t, "--preset", c.preset, "--host", "512GiB,800GB/s,x2", "--share", c.share)
		require.NoError(t, err)
		require.EqualValues(t, c.sums*c.width*2, p.Bounds.Wire, "%s, %s", c.preset, c.share)
	}
}

// The model of this host's server, in the environment, does not hinder a preset.
func TestPlanPresetBesideEnvironment(t *testing.T) {
	t.Setenv("RINGMASTER_MODEL", "/models/of-the-server.gguf")
	p, err := planJSON(t, "--preset", "v2-lite", "--host", "64GiB")
	require.NoError(t, err)
	require.Contains(t, p.Model, "v2-lite")
	for _, preset := range []string{"v3.2", "glm-5"} {
		p, err = planJSON(t, "--preset", preset, "--host", "1TiB")
		require.NoError(t, err)
		require.Contains(t, p.Model, preset)
		require.True(t, p.Fits)
	}
	_, err = planJSON(t, "--host", "64GiB")
	require.ErrorContains(t, err, "of-the-server.gguf")
}

// TestPlanInput: what cannot be planned has exit code 2 and one line with the cure.
func TestPlanInput(t *testing.T) {
	for args, want := range map[string]string{
		"--preset v3":                                 "0 hosts; give one to eight",
		"--preset v3 --host 1GiB,x8 --host 1GiB":      "9 hosts",
		"--host 1GiB":                                 "give --model FILE, or --preset",
		"--host 1GiB --preset v3 --model x":           "give --model FILE, or --preset",
		"--host 1GiB --preset v9":                     `--preset is "v9"; expected glm-5`,
		"--host 1GiB --model nothing.gguf":            "nothing.gguf",
		"--host 1GiB --model x --experts q8_0":        "a file has its own",
		"--host 1GiB --preset v3 --experts q99":       `--experts is "q99"`,
		"--host many --preset v3":                     `"many"; expected MEMORY`,
		"--host 1GiB,fast --preset v3":                `"fast"; expected MEMORY`,
		"--host 1GiB,-1GB/s --preset v3":              `"-1GB/s"; expected`,
		"--host 1GiB,offer=2GiB --preset v3":          `"offer=2GiB"`,
		"--host 1GiB,threads=0 --preset v3":           `"threads=0"`,
		"--host 1GiB,x9 --preset v3":                  `"x9"`,
		"--host 1GiB --preset v3 --link tape":         `--link is "tape"`,
		"--host 1GiB --preset v3 --share some":        "--share",
		"--host 1GiB --preset v3 --share experts:1,2": "2 numbers for 1 ranks",
		"--host 1GiB --preset v3 --reduce mean":       "mean",
		"--host 1GiB --preset v3 --sequences 0":       `--sequences is "0"`,
		"--host 900GiB --preset v3 --ctx 99999999":    "allows at most",
		"--host 1GiB --preset v3 more":                `unknown command "more"`,
		"--host 1GiB --preset v3 --transport tcp":     "unknown flag: --transport",
	} {
		_, err := planJSON(t, strings.Fields(args)...)
		requireRefused(t, err, args, want)
	}
}

// predictedOf is the prediction of a plan by what and length.
func predictedOf(t *testing.T, all []forecast.Prediction, what string, n int) forecast.Prediction {
	t.Helper()
	for _, p := range all {
		if p.What == what && p.N == n {
			return p
		}
	}
	t.Fatalf("no prediction of %s %d in %+v", what, n, all)
	return forecast.Prediction{}
}

// TestPlanPredicts: predictions are the cost model's for the hosts and the link, are
// above the bound by bytes, and are near it where nothing but reading takes time.
func TestPlanPredicts(t *testing.T) {
	testenv.Need(t, testenv.Full, "predictions against a model traced by hand")
	path := tinyModel(t, nil)
	f := gguftest.OpenFile(t, path)
	open := decoder.OpenOptions{Context: 1024, MaxTokens: 256}
	tracer, err := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) { return arch.Open(f, b, open) })
	require.NoError(t, err)
	defer func() { require.NoError(t, tracer.Close()) }()
	for _, share := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
		p, err := planJSON(t, "--model", path, "--host", "2GiB,10GB/s,0.2TFLOP/s,op=7us", "--host", "2GiB,5GB/s,0.2TFLOP/s,op=7us",
			"--link", "0.5GB/s,40us", "--share", share.String(), "--ctx", "1024", "--max-batch", "256", "--reach", "0.5")
		require.NoError(t, err)
		members := make([]cluster.Hello, 2)
		for r := range members {
			members[r] = cluster.Hello{Rank: r, Size: 2, Memory: 2 << 30 / 20 * 19, Threads: 16}
		}
		planned, err := groupplan.Options{Model: f, Sequences: 16, Context: 1024, MaxTokens: 256, Share: groupplan.Share{Of: share}}.Plan(members, 0)
		require.NoError(t, err)
		placement := planned.Settings.Placement.DivideRows(0) // with copies of all experts
		costs := calibrate.Suppose([]calibrate.Host{{Memory: 5e9, Compute: 5e10, Op: 7e-6}, {Memory: 2.5e9, Compute: 5e10, Op: 7e-6}},
			calibrate.Network{Latency: 40e-6, Rate: 0.5e9, Hops: 1})
		e, err := tracer.Expect(t.Context(), placement, costs, calibrate.Work{Rows: 1, Pos: 128})
		require.NoError(t, err)
		got := predictedOf(t, p.Predicted, "decode", 128)
		require.InEpsilon(t, e.Seconds, got.Seconds, 1e-9)
		require.InEpsilon(t, e.Compute[0], got.Compute, 1e-9)
		require.InEpsilon(t, 1/e.Seconds, got.Rate, 1e-9)
		// A prompt of two chunks, each with its rows divided if that takes less.
		sum := 0.0
		for at := 0; at < 512; at += 256 {
			least := 1e9
			for i, way := range []parallel.Placement{placement, placement.DivideRows(1)} {
				if e, err = tracer.Expect(t.Context(), way, costs, calibrate.Work{Rows: 256, Pos: at}); err != nil {
					t.Fatal(err)
				}
				if i == 0 || (share == parallel.ShareAll || !way.DividesRows()) && e.Seconds <= 0.98*least {
					least = e.Seconds
				}
			}
			sum += least
		}
		got = predictedOf(t, p.Predicted, "prefill", 512)
		require.InEpsilon(t, sum, got.Seconds, 1e-9)
		require.Equal(t, int64(512*p.Bounds.Wire), got.Least, "two ranks: an all-reduce receives as many bytes as its vector has")
		require.GreaterOrEqual(t, got.Received, got.Least)
		require.Len(t, p.Predicted, 2, "no prompt of 2048 tokens in a context of 1024")
	}
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
	svg := filepath.Join(t.TempDir(), "speed.svg")
	out, err := command(t, "plan", "--preset", "v2-lite", "--host", "10GiB,800GB/s,20TFLOP/s", "--link", "10g", "--table", "--svg", svg)
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
	p, err := planJSON(t, "--preset", "v2-lite", "--host", "10GiB,800GB/s,20TFLOP/s,x8", "--link", "10g", "--share", "all")
	require.NoError(t, err)
	for _, got := range p.Predicted {
		require.Contains(t, lines[8], fmt.Sprintf("%.1f", got.Rate))
	}
	requireDrawn(t, svg, "Prefill of 512 tokens, predicted", "Decode after 128 tokens, predicted", "--share experts", "--share all", "8")
	_, err = command(t, "plan", "--preset", "v2-lite", "--host", "128GiB,800GB/s", "--svg", svg)
	requireRefused(t, err, "--svg", "--svg needs one --host")
	_, err = command(t, "plan", "--preset", "v2-lite", "--host", "128GiB,800GB/s", "--svg", filepath.Join(svg, "x"))
	requireRefused(t, err, "--svg", "--svg: ")
	for args, want := range map[string]string{
		"--host 128GiB,800GB/s":                                 "--table needs one --host",
		"--host 128GiB,800GB/s,20TFLOP/s,x2":                    "--table needs one --host",
		"--host 128GiB,800GB/s,20TFLOP/s --share all:memory":    "no shares in --share",
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
		requireRefused(t, err, args, want)
	}
}

// TestPictureOfPerformance: the picture with which docs/performance.md begins is what the
// command beside it draws. If a change of the cost model is right, run the command again.
func TestPictureOfPerformance(t *testing.T) {
	testenv.Need(t, testenv.Full, "the picture of docs/performance.md")
	t.Setenv("TMPDIR", t.TempDir())
	text := testenv.ReadFile(t, "../../docs/performance.md")
	found := regexp.MustCompile("`ringmaster (plan [^`]+ --svg )(docs/pictures/[^`]+)`").FindSubmatch(text)
	require.NotNil(t, found)
	drawn := filepath.Join(t.TempDir(), "a.svg")
	_, err := command(t, append(strings.Fields(string(found[1])), drawn)...)
	require.NoError(t, err)
	require.Equal(t, string(testenv.ReadFile(t, filepath.Join("../..", string(found[2])))), string(testenv.ReadFile(t, drawn)))
}

// TestPlanCountsWaits: a Mac's GPU makes every exchange wait, so that two Macs decode slower
// than one, which plan says; without the wait they would decode faster.
func TestPlanCountsWaits(t *testing.T) {
	testenv.Need(t, testenv.Full, "predictions of groups of Macs with and without waits")
	rate := func(host string, share string) float64 {
		p, err := planJSON(t, "--preset", "v4-flash", "--host", host, "--link", "rdma", "--share", share)
		require.NoError(t, err)
		return predictedOf(t, p.Predicted, "decode", 128).Rate
	}
	const mac = "512GiB,819GB/s,28TFLOP/s,mac"
	one := rate(mac, "experts")
	require.InEpsilon(t, 0.87, rate(mac+",x2", "experts")/one, 0.02)
	require.InEpsilon(t, 0.74, rate(mac+",x2", "all")/one, 0.02)
	require.InEpsilon(t, 1.13, rate(mac+",wait=0s,x2", "experts")/one, 0.02)
	require.InEpsilon(t, 1.43, rate(mac+",wait=0s,x2", "all")/one, 0.02)
	out, err := command(t, "plan", "--preset", "v4-flash", "--host", mac+",x2", "--link", "rdma")
	require.NoError(t, err)
	require.Contains(t, out, "each exchange waits 200 us")
	require.Contains(t, out, "slower than rank 0 alone: decode by ")
}

// TestPlanLeavesRowsOut: of a prompt of V4.1 the last layers compute the last rows only, except
// on a Mac's GPU. What ranks receive is what a prompt of fewer rows takes.
func TestPlanLeavesRowsOut(t *testing.T) {
	c, err := synthetic.Preset("v41-tiny")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "v41.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	predicted := func(host string) forecast.Prediction {
		p, err := planJSON(t, "--model", path, "--host", "8GiB,40GB/s,1TFLOP/s,x2"+host, "--link", "10g", "--share", "experts", "--ctx", "4096")
		require.NoError(t, err)
		return predictedOf(t, p.Predicted, "prefill", 2048)
	}
	cpu, gpu := predicted(""), predicted(",mac,wait=0s")
	require.Equal(t, cpu.Received, predicted(",gpu=4GiB,400GB/s,10TFLOP/s").Received, "a graphics card leaves rows out")
	require.Zero(t, cpu.Least)
	require.GreaterOrEqual(t, gpu.Received, gpu.Least)
	// The last layer that makes entries of ten is number 5; windows have 32 rows.
	rows := 0
	for l := range 10 {
		rows += 2048
		if l >= 5 {
			rows -= 2048 - 1 - 64 - 31*(9-l)
		}
	}
	require.InEpsilon(t, float64(gpu.Received)*float64(rows)/(10*2048), float64(cpu.Received), 0.001)
}
