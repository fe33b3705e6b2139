//go:build unix

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// verified is the part of a report of verify that the tests read.
type verified struct {
	Verdict string
	Checks  []struct {
		Name, Verdict, Detail string
		Figures               map[string]float64
	}
	Differences []struct {
		Ranks         []int
		Unclear       bool
		What, Kind    string
		Layer, Expert int
	}
	Links []struct {
		From, To    int
		Bytes       int64
		Corrupt     int64 `json:"corrupt_bytes"`
		Retransmits int64
		Rate        float64
		Latency     time.Duration
		Why         string
	}
}

// verify examines the group of a bed by the command, and returns its exit code and report.
func (b *bed) verify(flags ...string) (int, verified) {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "report.json")
	args := append([]string{b.Program, "verify", "--coordinator", b.Coordinator, "--report", file, "--timeout", "1m"}, flags...)
	p := harness.Run(b.t, nil, args...)
	code := exitCode(b.t, p)
	var r verified
	text, err := os.ReadFile(file)
	require.NoError(b.t, err, "%s", p.Log)
	require.NoError(b.t, json.Unmarshal(text, &r))
	b.t.Logf("%s", p.Log)
	return code, r
}

// flipExpert changes a bit of one expert's weights in a rank's own copy of the file, which
// the rank has mapped. It returns the layer.
func flipExpert(t *testing.T, path, tensor string, expert int, r *rand.Rand) (layer int) {
	f := gguftest.OpenFile(t, path)
	layer = r.IntN(16)
	x, ok := f.Tensor(fmt.Sprintf("blk.%d.%s", layer, tensor))
	require.True(t, ok)
	each := len(x.Data) / int(x.Shape[2])
	at := expert*each + r.IntN(each)
	whole := testenv.ReadFile(t, path)
	begin := bytes.Index(whole, x.Data[:min(len(x.Data), 4096)]) // random weights, so it occurs once
	require.Positive(t, begin)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.WriteAt([]byte{x.Data[at] ^ 1<<r.IntN(8)}, int64(begin+at))
	require.NoError(t, err)
	return layer
}

// TestVerifyRanks: a group that answers is examined without an effect on its answers, and
// passes; a bit of one expert of one rank is found, with rank, layer and kind, by a majority
// or by the host that verifies.
func TestVerifyRanks(t *testing.T) {
	testenv.Need(t, testenv.Full, "the ranks of a group examined")
	for _, size := range []int{2, 3} {
		t.Run(fmt.Sprint(size, " ranks"), func(t *testing.T) {
			t.Parallel()
			o := harness.Options{Size: size, Model: model(t, slowModel), RankFlags: map[int][]string{}, Flags: continueFlags}
			for r := range size {
				o.RankFlags[r] = []string{"--model", copyOf(t, o.Model)}
			}
			b := formed(t, o)
			u := b.begin(phases[2])
			code, r := b.verify("--soak", "50ms", "--model", o.Model)
			require.Zero(t, code)
			require.Equal(t, "pass", r.Verdict)
			require.Len(t, r.Links, size*(size-1))
			b.requireWhole(u, longAnswer)

			random := rand.New(rand.NewPCG(uint64(size), 3))
			victim, tensor := size-1, []string{"ffn_down_exps.weight", "ffn_gate_exps.weight"}[size%2]
			expert := 15 // of the last rank
			layer := flipExpert(t, o.RankFlags[victim][1], tensor, expert, random)
			flags := []string{"--soak", "0"}
			if size == 2 {
				code, r = b.verify(flags...)
				require.Equal(t, 5, code)
				require.Len(t, r.Differences, 1)
				require.True(t, r.Differences[0].Unclear, "no one can tell which of two is wrong")
				require.Equal(t, []int{0, 1}, r.Differences[0].Ranks)
				flags = append(flags, "--model", o.Model)
			}
			code, r = b.verify(flags...)
			require.Equal(t, 5, code)
			require.Equal(t, "fail", r.Verdict)
			require.Len(t, r.Differences, 1)
			d := r.Differences[0]
			require.Equal(t, []int{victim}, d.Ranks)
			require.False(t, d.Unclear)
			require.Equal(t, "weights", d.What)
			require.Equal(t, fmt.Sprintf("blk.%d.%s", layer, tensor), d.Kind)
			require.Equal(t, [2]int{layer, expert}, [2]int{d.Layer, d.Expert})
			require.Contains(t, r.Checks[0].Detail, fmt.Sprintf("%s: layer %d, %s of expert %d", hostName(victim), layer, tensor, expert))
		})
	}
}

// dataProxy makes the data from rank 1 to rank 0 pass a proxy. It rewrites rank 0's address
// on its way to rank 1, so the group must not have a key.
func dataProxy(t *testing.T, o *harness.Options, b **bed) (data func() *harness.Proxy) {
	var p atomic.Pointer[harness.Proxy]
	addr := testenv.LoopbackAddr(t)
	o.Via = map[int]string{1: addr}
	address := regexp.MustCompile(`"addrs":\["(127\.0\.0\.1:\d{5})"`)
	start := func() {
		control, err := harness.NewProxy(addr, (*b).Coordinator)
		require.NoError(t, err)
		t.Cleanup(func() { control.Close() })
		control.Alter(func(data []byte, back bool) []byte {
			m := address.FindSubmatchIndex(data)
			if !back || m == nil {
				return data
			}
			if p.Load() == nil {
				x := proxyOfFiveDigits(string(data[m[2]:m[3]]))
				p.Store(x)
				t.Cleanup(func() { x.Close() })
			}
			copy(data[m[2]:m[3]], p.Load().Addr())
			return data
		})
	}
	return func() *harness.Proxy {
		if p.Load() == nil {
			start()
		}
		return p.Load()
	}
}

// proxyOfFiveDigits makes a proxy with a port of as many digits as the target's.
func proxyOfFiveDigits(target string) *harness.Proxy {
	for {
		x, err := harness.NewProxy("127.0.0.1:0", target)
		if err != nil {
			panic(err) // in a goroutine of the proxy
		}
		if _, port, _ := net.SplitHostPort(x.Addr()); len(port) == 5 {
			return x
		}
		x.Close()
	}
}

// TestVerifyLinks: a link that changes bytes and one that is slow are found, each with its
// direction, and the others pass.
func TestVerifyLinks(t *testing.T) {
	testenv.Need(t, testenv.Full, "the links of a group soaked")
	o := harness.Options{Size: 2, Model: model(t, slowModel), Flags: continueFlags}
	var b *bed
	data := dataProxy(t, &o, &b)
	b = newBed(t, o)
	data()
	b.form()
	soak := []string{"--recompute=false", "--soak", "100ms"}
	code, r := b.verify(soak...)
	require.Zero(t, code)
	require.Len(t, r.Links, 2)

	// A byte in the middle of a full piece of data, so that no header is hit, on the way to
	// rank 0.
	data().Alter(func(x []byte, back bool) []byte {
		if !back && len(x) == 64<<10 {
			x[len(x)/2] ^= 4
		}
		return x
	})
	code, r = b.verify(soak...)
	require.Equal(t, 5, code)
	require.Positive(t, r.Links[1].Corrupt)
	require.Equal(t, [2]int{1, 0}, [2]int{r.Links[1].From, r.Links[1].To})
	require.Contains(t, r.Links[1].Why, "bytes arrived changed")
	require.Zero(t, r.Links[0].Corrupt)
	data().Alter(nil)
	b.requireAnswer(brief)

	data().Delay(5 * time.Millisecond)
	code, r = b.verify(append(soak, "--link", "0.00001GB/s,1ms")...)
	require.Equal(t, 5, code)
	for _, l := range r.Links {
		require.GreaterOrEqual(t, l.Latency, 5*time.Millisecond)
		require.Contains(t, l.Why, "for a message of 8 bytes where 1ms is expected")
		require.Zero(t, l.Corrupt)
	}
	code, r = b.verify(append(soak, "--link", "400g")...)
	require.Equal(t, 5, code)
	require.Contains(t, r.Links[0].Why, "where 50.00 GB/s is expected (400g)")
	data().Delay(0)

	// A link that breaks meanwhile is reported as a failure by name, and the group continues.
	var once sync.Once
	data().Alter(func(x []byte, back bool) []byte {
		if len(x) == 64<<10 {
			once.Do(func() { go data().Drop() })
		}
		return x
	})
	code, r = b.verify(soak...)
	require.Equal(t, 5, code)
	require.Equal(t, "fail", r.Verdict)
	require.Contains(t, r.Checks[0].Detail, "the link from "+hostName(0)+" to "+hostName(1)+", after")
	require.Contains(t, r.Checks[0].Detail, "rank 1")
	b.untilRanks(2)
	b.requireAnswer(brief)
}
