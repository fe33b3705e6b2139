package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf/gguftest"
	"ringmaster/groupplan"
	"ringmaster/internal/forecast"
	"ringmaster/kernels"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// TestPlanOnCards: a graphics card holds all, all but the routed experts, or nothing, of a group
// what the smallest holds; what it lacks is said in bytes. Without the
// rates of what computes, the plan says what to add.
func TestPlanOnCards(t *testing.T) {
	path := tinyModel(t, nil)
	plan := func(hosts ...string) (text string, gpus []groupplan.Card, memory int64, err error) {
		args := []string{"plan", "--model", path, "--ctx", "100", "--sequences", "2"}
		for _, h := range hosts {
			args = append(args, "--host", h)
		}
		text, err = command(t, args...)
		out, _ := command(t, append(args, "--json")...)
		var p struct {
			GPUs  []groupplan.Card
			Ranks []forecast.RankNeed
		}
		require.NoError(t, json.Unmarshal([]byte(out), &p), out)
		if len(p.Ranks) > 0 {
			memory = p.Ranks[0].Offer
		}
		return text, p.GPUs, memory, err
	}
	_, gpus, _, err := plan("2GiB,gpu=1GiB")
	require.NoError(t, err)
	c := gpus[0]
	require.Less(t, c.Dense, c.All)
	require.Equal(t, c.All, c.Dense+c.Experts)
	size := func(n int64) string { return fmt.Sprintf("gpu=%dB", n) }
	for _, tt := range []struct {
		gpu    int64
		on     decoder.OnGPU
		says   string
		offers int64
	}{
		{c.All + 1<<28, decoder.AllOnGPU, "the whole model needs", c.All + 1<<28},
		{c.All - 1000, decoder.DenseOnGPU, "the CPU computes the routed experts", 2<<30 - 2<<30/20},
		{c.Dense - 1000, decoder.NothingOnGPU, "which lacks 1000 B", 2<<30 - 2<<30/20},
	} {
		text, gpus, offers, err := plan("2GiB,10GB/s,1TFLOP/s," + size(tt.gpu))
		require.NoError(t, err, text)
		require.Equal(t, tt.on, gpus[0].On)
		require.Contains(t, text, "GPU of rank 0, ")
		require.Contains(t, text, tt.says)
		require.Equal(t, tt.offers, offers)
		require.Equal(t, tt.on == decoder.NothingOnGPU, strings.Contains(text, "predicted by the cost model"), text)
		for on, lacks := range map[decoder.OnGPU]string{decoder.AllOnGPU: "each GPU behind gpu= (--host ", decoder.DenseOnGPU: "each host, and behind gpu= those of its GPU (--host "} {
			require.Equal(t, tt.on == on, strings.Contains(text, "no prediction without the rate of the memory and the speed of "+lacks), text)
		}
	}
	text, gpus, _, err := plan("2GiB,"+size(c.All+1<<28), "2GiB,"+size(c.All-1000))
	require.NoError(t, err)
	require.Equal(t, []decoder.OnGPU{decoder.DenseOnGPU, decoder.DenseOnGPU}, []decoder.OnGPU{gpus[0].On, gpus[1].On})
	require.Contains(t, text, "which lacks 1000 B for that")
	require.Contains(t, text, "and --backend vulkan+cpu\n")
	text, _, _, err = plan("2GiB,x2," + size(c.Dense-1000))
	require.NoError(t, err)
	require.Contains(t, text, "GPU of each of ranks 0 to 1, ")
	text, gpus, _, err = plan("2GiB,"+size(c.All), "2GiB,"+size(c.Dense-1000))
	require.NoError(t, err)
	require.Equal(t, decoder.NothingOnGPU, gpus[0].On)
	require.Contains(t, text, "not used, because that of another rank has no room")
	text, _, _, err = plan("64MiB," + size(c.All))
	require.NoError(t, err, "all is on the card")
	require.Contains(t, text, "the GPU's memory")
	_, err = command(t, "plan", "--model", path, "--host", "2GiB,gpu=1GiB", "--host", "2GiB")
	requireRefused(t, err, "mixed", "1 of 2 hosts have a gpu=")
}

// TestHostWithCard: what stands behind gpu= is the card's; what is there twice, or beside mac, is
// refused with the syntax.
func TestHostWithCard(t *testing.T) {
	h, err := forecast.ParseHosts("96GiB,80GB/s,2TFLOP/s,op=4us,gpu=12GiB,504GB/s,30TFLOP/s,op=7us,wait=9us,threads=8,x2")
	require.NoError(t, err)
	require.Equal(t, 2, h.Count)
	require.Equal(t, 8, h.Threads)
	require.Equal(t, int64(12<<30), h.GPU)
	require.Equal(t, forecast.Rates{Rate: 80e9, Compute: 1e12, Op: 4e-6}, h.Rates)
	require.Equal(t, forecast.Rates{Rate: 504e9, Compute: 15e12, Op: 7e-6, Wait: 9e-6}, *h.GPURates)
	h, err = forecast.ParseHosts("96GiB,gpu=12GiB,504GB/s")
	require.NoError(t, err)
	require.Zero(t, h.Rate, "the host's is not known")
	require.Positive(t, h.GPURates.Op)
	require.Greater(t, h.GPURates.Wait, h.GPURates.Op)
	require.Zero(t, h.Wait)
	for _, bad := range []string{
		"1GiB,40GB/s,50GB/s", "1GiB,1TFLOP/s,gpu=1GiB,2TFLOP/s,3TFLOP/s", "1GiB,gpu=1GiB,gpu=2GiB", "1GiB,op=1us,op=1us", "1GiB,x2,x2", "1GiB,threads=1,threads=2",
		"1GiB,gpu=1GiB,mac", "1GiB,mac,gpu=1GiB", "1GiB,gpu=0B", "1GiB,gpu=1GiB,0GB/s", "1GiB,gpu=1GiB,wait=2s", "gpu=1GiB,1GiB", "1GiB,x", "1GiB,mac=1", "1GiB,",
	} {
		_, err := forecast.ParseHosts(bad)
		require.ErrorContains(t, err, "expected "+forecast.HostForm, bad)
	}
}

// partsOf are the predictions of a plan by what its GPUs compute, [prefill, decode].
func partsOf(t *testing.T, path, host string) map[decoder.OnGPU][2]float64 {
	t.Helper()
	out, err := command(t, "plan", "--json", "--model", path, "--ctx", "1024", "--max-batch", "256", "--link", "9GB/s,5us", "--host", host)
	require.NoError(t, err)
	var o forecast.Outcome
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	parts := map[decoder.OnGPU][2]float64{}
	for _, p := range o.Parts {
		require.True(t, p.Fits, p)
		parts[p.On] = [2]float64{p.Prefill, p.Decode}
	}
	return parts
}

// TestPlanPredictsCards: for sensible rates the CPU with a card lies between the CPU alone and the
// card alone, also in a group, and a higher rate of either makes nothing slower.
func TestPlanPredictsCards(t *testing.T) {
	path := tinyModel(t, nil)
	const host = "2GiB,%gGB/s,%gTFLOP/s,gpu=1GiB,%gGB/s,%gTFLOP/s,op=3us,wait=3us"
	rates := []any{0.5, 0.05, 5.0, 0.5}
	for _, group := range []string{"", ",x2"} {
		base := partsOf(t, path, fmt.Sprintf(host, rates...)+group)
		require.Len(t, base, 3)
		for i, what := range []string{"prefill", "decode"} {
			require.Less(t, base[decoder.NothingOnGPU][i], base[decoder.DenseOnGPU][i], what)
			require.Less(t, base[decoder.DenseOnGPU][i], base[decoder.AllOnGPU][i], what)
		}
		if group != "" {
			continue
		}
		for i := range rates {
			faster := append([]any(nil), rates...)
			faster[i] = 2 * rates[i].(float64)
			all := partsOf(t, path, fmt.Sprintf(host, faster...))
			for on, before := range base {
				uses := on == decoder.DenseOnGPU || (on == decoder.AllOnGPU) == (i >= 2)
				for k := range before {
					if uses {
						require.Greater(t, all[on][k], before[k], "%v, rate %d", on, i)
					} else {
						require.Equal(t, before[k], all[on][k], "%v, rate %d", on, i)
					}
				}
			}
		}
		slow := partsOf(t, path, fmt.Sprintf(strings.Replace(host, "wait=3us", "wait=1ms", 1), rates...))
		require.Less(t, slow[decoder.DenseOnGPU][1], base[decoder.DenseOnGPU][1])
		require.Equal(t, slow[decoder.NothingOnGPU], base[decoder.NothingOnGPU])
	}
}

// TestPlanRecomputed: a token with its routed experts on the CPU takes, for each wait of the CPU,
// the GPU's ops up to it, the wait, and the longer of the CPU's ops and of the GPU's ops beside them.
func TestPlanRecomputed(t *testing.T) {
	path := tinyModel(t, nil)
	f := gguftest.OpenFile(t, path)
	open := decoder.OpenOptions{Context: 1024, MaxTokens: 256}
	tracer, err := calibrate.NewTracerBesideGPU(func(b kernels.Backend) (decoder.Decoder, error) { return arch.Open(f, b, open) })
	require.NoError(t, err)
	defer func() { require.NoError(t, tracer.Close()) }()
	p, err := arch.Plan(f, open, 1)
	require.NoError(t, err)
	placement, err := parallel.Place(parallel.ShareExperts, p.Sizes, []float64{1})
	require.NoError(t, err)
	traces, err := tracer.Traces(t.Context(), placement, calibrate.Work{Rows: 1, Pos: 128})
	require.NoError(t, err)
	seconds := func(o *cost.Op) float64 {
		bytes, work := o.Bytes, o.Work
		if c := o.Chosen; c != nil { // a token has different experts
			bytes, work = c.Bytes*float64(c.Used), c.Work*float64(c.Used)
		}
		switch {
		case o.OnCPU && bytes+work > 0: // of half of 8 GB/s and 0.2 TFLOP/s
			return 2e-6 + bytes/4e9 + work/0.05e12
		case !o.OnCPU:
			return 5e-6 + bytes/50e9 + work/1e12
		}
		return 0
	}
	total, beside, cpu, waits := 0.0, 0.0, 0.0, 0
	for _, e := range traces[0] {
		switch {
		case e.Reach:
			total += math.Max(beside, cpu) + 30e-6
			beside, cpu = 0, 0
			waits++
		case e.Op.OnCPU:
			cpu += seconds(e.Op)
		case cpu > 0: // needs the CPU's
			total += math.Max(beside, cpu) + seconds(e.Op)
			beside, cpu = 0, 0
		default:
			beside += seconds(e.Op)
		}
	}
	require.Zero(t, cpu)
	require.Greater(t, waits, 1)
	const host = "2GiB,8GB/s,0.2TFLOP/s,op=2us,gpu=1GiB,100GB/s,4TFLOP/s,op=5us,wait=30us"
	out, err := command(t, "plan", "--json", "--model", path, "--ctx", "1024", "--max-batch", "256", "--reach", "0.5", "--host", host)
	require.NoError(t, err)
	var o forecast.Outcome
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	require.Equal(t, decoder.DenseOnGPU, o.Parts[1].On)
	require.InEpsilon(t, 1/total, o.Parts[1].Decode, 1e-9)
	require.Equal(t, o.Parts[0].Decode, predictedOf(t, o.Predicted, "decode", 128).Rate, "the plan is that with all on the GPU")
}

// TestPlanShowsParts: the text has a line for each part of the model that a card could compute,
// with what the card lacks; without the host's rates only the card alone is predicted. Stages too.
func TestPlanShowsParts(t *testing.T) {
	path := tinyModel(t, nil)
	plan := func(args ...string) string {
		out, err := command(t, append([]string{"plan", "--model", path, "--ctx", "1024"}, args...)...)
		require.NoError(t, err, out)
		return out
	}
	out := plan("--host", "2GiB,gpu=1GiB,100GB/s,4TFLOP/s")
	require.Regexp(t, `(?m)^ +on the GPU +--backend +prefill of 512 +decode *\n +all +vulkan +\d+\.\d t/s +\d+\.\d t/s *\n +all but the routed experts +vulkan\+cpu +unknown +unknown *\n +nothing +cpu +unknown +unknown *$`, out)
	require.NotContains(t, out, "no prediction")
	require.NotContains(t, plan("--host", "2GiB,10GB/s,1TFLOP/s,gpu=1GiB"), "on the GPU  ", "the card's rates are not known")
	_, text, _ := strings.Cut(out, "the whole model needs ")
	needs, _, _ := strings.Cut(text, " MiB")
	var mib float64
	_, err := fmt.Sscan(needs, &mib)
	require.NoError(t, err)
	dense := fmt.Sprintf("2GiB,10GB/s,1TFLOP/s,gpu=%dMiB,100GB/s,4TFLOP/s", int(mib)-1)
	out = plan("--host", dense)
	require.Regexp(t, `(?m)^ +all +vulkan +does not fit +a GPU lacks \d.*\n +all but the routed experts +vulkan\+cpu +\d+\.\d t/s +\d+\.\d t/s`, out)
	require.Contains(t, out, "  each exchange and the routed experts of each layer wait ")
	require.Contains(t, out, "decode of one sequence: at most ")
	out = plan("--host", dense+",x2", "--stages", "2")
	require.Regexp(t, `(?m)^ +all but the routed experts +vulkan\+cpu +\d+\.\d t/s`, out)
	require.Regexp(t, `(?m)^ +stages 2 +1024 .* t/s`, out)
	table := plan("--host", dense, "--table")
	require.Equal(t, 9, strings.Count(table, "\n"), table)
}
