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

// decodeBounds returns the bounds of a plan. reads [ranks] is the bytes of weights that
// each rank reads for a token; sums is how many sums of a row the ranks exchange.
func decodeBounds(p decoder.Plan, reads []int64, hosts []Host, link Link, sums int) Bounds {
	b := Bounds{Bytes: reads}
	longest, known := 0.0, true
	for i := range reads {
		if known = known && hosts[i].Rate > 0; known {
			if t := float64(b.Bytes[i]) / hosts[i].Rate; t > longest {
				longest, b.Slow = t, i
			}
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
