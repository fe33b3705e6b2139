package forecast

import (
	"ringmaster/model/decoder"
)

// Bounds are what no rank can be faster than, from bytes alone.
type Bounds struct {
	// Decode is tokens a second of one sequence; 0: a rate of memory is unknown.
	Decode float64 `json:"decode_tokens_per_second,omitempty"`
	Bytes  []int64 `json:"bytes_per_token"` // of the weights that each rank reads for a token
	Wire   int64   `json:"wire_per_token"`  // bytes that each rank must receive for a token
	Slow   int     `json:"slowest_rank"`    // that bounds it
}

// decodeBounds are the bounds of a plan on hosts whose ranks read so many bytes of weights
// for a token, [ranks], and exchange so many sums of a row.
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
	if len(reads) > 1 { // a row of sums must reach every rank, in float16 at least
		b.Wire = int64(sums) * int64(p.Routed.Embd) * 2
		longest += float64(b.Wire) / link.Rate
	}
	if known && longest > 0 {
		b.Decode = 1 / longest
	}
	return b
}
