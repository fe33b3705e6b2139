package forecast

import (
	"ringmaster/model/decoder"
)

// Bounds limit the speed of a group from bytes alone: no rank can be faster.
type Bounds struct {
	// Decode is in tokens per second of one sequence; 0: a memory's rate is unknown.
	Decode float64 `json:"decode_tokens_per_second,omitempty"`
	Bytes  []int64 `json:"bytes_per_token"` // weights that each rank reads for a token
	Wire   int64   `json:"wire_per_token"`  // bytes that each rank must receive for a token
	Slow   int     `json:"slowest_rank"`    // the rank that sets the bound
}

// decodeBounds returns the bounds of a plan. reads [ranks] is what each rank reads for a token;
// sums is how many sums of a row the ranks exchange.
func decodeBounds(p decoder.Plan, reads []read, hosts []Host, link Link, sums int) Bounds {
	b := Bounds{Bytes: bytesOf(reads)}
	longest, known := 0.0, true
	for i, r := range reads {
		t := hosts[i].seconds(r)
		if known = known && t > 0; known && t > longest {
			longest, b.Slow = t, i
		}
	}
	if len(reads) > 1 { // every rank must receive a row of sums, at least in float16
		b.Wire = int64(sums) * int64(p.Routed.Embd) * 2
		longest += float64(b.Wire) / link.Rate
	}
	if known && longest > 0 {
		b.Decode = 1 / longest
	}
	return b
}

// bytesOf is the bytes of reads, those of a rank's devices together.
func bytesOf(reads []read) []int64 {
	out := make([]int64, len(reads))
	for i, r := range reads {
		out[i] = r.all
	}
	return out
}
