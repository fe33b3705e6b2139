package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf/gguftest"
	"ringmaster/groupplan"
	"ringmaster/internal/forecast"
	"ringmaster/internal/testenv"
)

// outcomeOf runs plan --json and reads all of it.
func outcomeOf(t *testing.T, args ...string) (o forecast.Outcome) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	out, err := command(t, append([]string{"plan", "--json"}, args...)...)
	require.NoError(t, err, "%v", args)
	require.NoError(t, json.Unmarshal([]byte(out), &o), out)
	return o
}

// TestPlanStages: the memory of each rank is that which serve plans for the same --stages, and a
// token takes what it takes on one host, a message to the second stage and the way back.
func TestPlanStages(t *testing.T) {
	path := tinyModel(t, nil)
	f := gguftest.OpenFile(t, path)
	stages, err := groupplan.ParseStages("2")
	require.NoError(t, err)
	args := []string{"--model", path, "--ctx", "1024", "--max-batch", "256", "--link", "0.001GB/s,3ms", "--reach", "1"}
	const host = "2GiB,1GB/s,0.1TFLOP/s,threads=2"
	got := outcomeOf(t, append(args, "--host", host+",x2", "--stages", "2")...)
	var members []cluster.Hello
	for r, need := range got.Ranks {
		members = append(members, cluster.Hello{Rank: r, Size: 2, Memory: need.Offer, Threads: 2})
	}
	serve := &serveOptions{}
	serve.register(pflag.NewFlagSet("", pflag.ContinueOnError)) // for the defaults
	want, err := groupplan.Options{Model: f, Sequences: 16, Context: 1024, MaxTokens: 256, Stages: stages, Heap: serve.Heap(0)}.Plan(members, 0)
	require.NoError(t, err)
	for r, need := range got.Ranks {
		require.Equal(t, want.Ranks[r].Part.Layers, need.Layers)
		require.Equal(t, want.Ranks[r].Resident(), need.Resident)
	}
	require.Equal(t, groupplan.StagesOf(want.Settings.Placement).String(), got.Stages)
	require.Equal(t, want.Settings.Context, got.Context)
	require.Len(t, got.Alternatives, 4)
	a := got.Alternatives[3]
	require.Equal(t, "2", a.Stages)
	require.True(t, a.Fits)

	one := outcomeOf(t, append(args, "--host", host)...)
	alone, decode := predictedOf(t, one.Predicted, "decode", 128), predictedOf(t, got.Predicted, "decode", 128)
	row := float64(got.Bounds.Wire) // as many bytes as the final row, which are all residual streams
	require.InEpsilon(t, alone.Seconds+2*3e-3+2*row/1e6, decode.Seconds, 0.03)
	require.InDelta(t, decode.Rate, a.Decode, 1e-9)
	prefill := predictedOf(t, got.Predicted, "prefill", 512)
	require.InDelta(t, prefill.Rate, a.Prefill, 1e-9)
	require.GreaterOrEqual(t, prefill.Seconds, 512*row/1e6, "all rows pass over the link")

	text, err := command(t, append([]string{"plan", "--host", host + ",x2", "--stages", got.Stages}, args...)...)
	require.NoError(t, err)
	for _, want := range []string{"on rank 0, of its layers; --stages " + got.Stages + " with --share experts inside\n", " layers ", "by the memories of all stages one after the other", "\n2 ranks: ", " stages 2 "} {
		require.Contains(t, text, want)
	}
}

// TestPlanChoosesStages: two islands of fast links with a slow one between them become two
// stages by themselves; hosts that all have the fast link do not. What only stages have room
// for is planned in them, as serve does.
func TestPlanChoosesStages(t *testing.T) {
	path := tinyModel(t, nil)
	plan := func(args ...string) forecast.Outcome {
		return outcomeOf(t, append(args, "--model", path, "--ctx", "1024", "--max-batch", "256")...)
	}
	const two = "2GiB,0.01GB/s,0.1TFLOP/s,op=0s,x2"
	for link, auto := range map[string]string{"9GB/s,1us+0.01GB/s,170ms": "experts", "9GB/s,1us+0.001GB/s,300ms": "stages"} {
		got := plan("--host", two, "--host", two, "--link", link)
		require.Regexp(t, `^--stages 2: a prompt of 512 tokens and 128 of an answer in 0\.\d\d times the time of --share auto, which takes `+auto, got.Recommended)
		require.Len(t, got.Alternatives, 5, "a stage for each host, and one for each island")
		require.Equal(t, "2", got.Alternatives[4].Stages)
	}
	got := plan("--host", two, "--host", two, "--link", "9GB/s,1us")
	require.Regexp(t, `^--share auto, which takes all: `, got.Recommended)
	if testenv.Rest(t, testenv.Full, "islands of a true shape") {
		const island = "128GiB,546GB/s,14TFLOP/s,x2"
		got = outcomeOf(t, "--preset", "v4-flash", "--host", island, "--host", island, "--link", "rdma+1g")
		require.Regexp(t, `^--stages 2: a prompt of 512 tokens and 128 of an answer in 0\.8\d times the time of --share auto, which takes `, got.Recommended)
	}

	const small = "88GiB,offer=87GiB,546GB/s,14TFLOP/s,x2"
	got = outcomeOf(t, "--preset", "v4-flash", "--host", small, "--ctx", "1048576")
	require.Equal(t, "--share auto, which takes stages, because nothing else has room", got.Recommended)
	require.Contains(t, got.Expected, "--share auto chose stages, because nothing else has room; 2 ranks: ")
	require.False(t, got.Alternatives[0].Fits || got.Alternatives[1].Fits)
	require.NotEmpty(t, got.Stages)
}

// TestPlanStagesInput: what serve refuses of --stages plan refuses, with the same words.
func TestPlanStagesInput(t *testing.T) {
	for args, want := range map[string]string{
		"--host 512GiB --stages 2":                                 "--stages 2: 2 stages need as many ranks; there are 1",
		"--host 512GiB,x2 --stages 1":                              `--stages is "1"; expected a number of stages`,
		"--host 512GiB,x2 --stages 0-9,11-42":                      `--stages is "0-9,11-42"`,
		"--host 512GiB,x2 --stages 0-9,10-11":                      "ends with layer 11; the model has the layers 0 to 42",
		"--host 512GiB,x2 --stages 0-9:1,10-42:2":                  "stages of 3 ranks together; there are 2",
		"--host 512GiB,x2 --stages 2 --share experts:memory":       "with --stages give the shares as numbers",
		"--host 512GiB,9GB/s,1TFLOP/s --stages 2 --table":          "no --stages",
		"--host 512GiB,x2 --link rdma+tape":                        `--link is "rdma+tape"`,
		"--host 512GiB,x2 --link rdma+1g+1g":                       `--link is "rdma+1g+1g"`,
		"--host 512GiB,x2 --stages 2 --share experts:1,2,3":        "3 numbers for 2 ranks",
		"--host 512GiB,x2 --stages many --share experts:1,2":       `--stages is "many"`,
		"--host 512GiB,x2 --stages 0-9,10-42 --share all --ctx -1": "--ctx",
	} {
		_, err := planJSON(t, append([]string{"--preset", "v4-flash"}, strings.Fields(args)...)...)
		requireRefused(t, err, args, want)
	}
}
