package forecast

import (
	"slices"

	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
)

// Rates are those of a processor or a GPU.
type Rates struct {
	Rate    float64 `json:"rate,omitempty"`    // of the memory in bytes per second; 0: unknown
	Compute float64 `json:"compute,omitempty"` // multiply-adds per second; 0: unknown
	Op      float64 `json:"op,omitempty"`      // overhead of an op in seconds, beyond reading and computing
	// Wait is the seconds from the end of a GPU's work until the CPU sees it and the GPU continues:
	// before each exchange, and before the CPU's part of a layer.
	Wait float64 `json:"wait,omitempty"`
}

// defaultOp is the default overhead of an op in seconds, beyond reading and computing:
// its call, and the start and end of threads or a GPU.
const defaultOp = 3e-6

// macWait is the default of Rates.Wait on a Mac. Others measured 150 to 200 us
// (ml-explore/mlx#1773) and 0.34 ms for each layer (antirez/ds4#1041); it was not measured here.
const macWait = 200e-6

// Defaults of a graphics card: of Rates.Op and Rates.Wait in seconds, fitted to three models on an
// H100 with Vulkan on 2026-11-28 (docs/performance.md, predicted against measured).
//   - cardOp: what a token on the GPU took beyond its bytes, divided by its ops then (263, 244 and
//     198), is 16.3, 11.9 and 21.9 us.
//   - cardWait: what a token with the routed experts on the CPU took beyond the ops of both,
//     divided by the waits (9, 8 and 7), is 0.49, 0.44 and 0.72 ms.
const (
	cardOp   = 16e-6
	cardWait = 500e-6
)

func (r Rates) known() bool { return r.Rate > 0 && r.Compute > 0 }

// reached is what ops reach, which is a part of the rates.
func (r Rates) reached(part float64) calibrate.Host {
	return calibrate.Host{Memory: part * r.Rate, Compute: part * r.Compute, Op: r.Op, Wait: r.Wait}
}

// on is what of the model a graphics card computes.
func (h Host) on() decoder.OnGPU {
	if h.card == nil {
		return decoder.NothingOnGPU
	}
	return h.card.On
}

// devices are the rates of what computes: all, or all but the routed experts where cpu, which
// computes these, is not nil.
func (h Host) devices() (most Rates, cpu *Rates) {
	switch h.on() {
	case decoder.AllOnGPU:
		return *h.GPURates, nil
	case decoder.DenseOnGPU:
		return *h.GPURates, &h.Rates
	}
	return h.Rates, nil
}

// supposed is the host with ops that reach a part of its rates.
func (h Host) supposed(part float64) calibrate.Host {
	most, cpu := h.devices()
	out := most.reached(part)
	if cpu != nil {
		experts := cpu.reached(part)
		out.CPU = &experts
	}
	return out
}

// read is bytes of weights that a rank reads for a token.
type read struct{ all, cpu int64 } // cpu: those that a CPU reads beside a GPU

// seconds is the least time that the host needs to read them, 0 if a rate is unknown. A CPU and a
// GPU may read at the same time.
func (h Host) seconds(r read) float64 {
	most, cpu := h.devices()
	if most.Rate == 0 || cpu != nil && cpu.Rate == 0 {
		return 0
	}
	if cpu == nil {
		return float64(r.all) / most.Rate
	}
	return max(float64(r.all-r.cpu)/most.Rate, float64(r.cpu)/cpu.Rate)
}

// predictable reports whether the rates of what computes are known on all hosts.
func predictable(hosts []Host) bool {
	return !slices.ContainsFunc(hosts, func(h Host) bool {
		most, cpu := h.devices()
		return !most.known() || cpu != nil && !cpu.known()
	})
}

// wanted says what predictions need, with an example.
func wanted(hosts []Host) string {
	switch hosts[0].on() {
	case decoder.AllOnGPU:
		return "the rate of the memory and the speed of each GPU behind gpu= (--host 64GiB,gpu=12GiB,504GB/s,30TFLOP/s)"
	case decoder.DenseOnGPU:
		return "the rate of the memory and the speed of each host, and behind gpu= those of its GPU (--host " + CardExample + ")"
	}
	return "the rate of each memory and the speed of each host (--host 64GiB,40GB/s,1TFLOP/s)"
}
