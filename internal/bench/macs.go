package bench

import "strings"

// A mac is what is expected of a chip, of what others measured on it with other programs. No
// Ringmaster has run on one. docs/notes/metal.md has the sources and the arithmetic.
type mac struct {
	name      string
	cores     int     // of the GPU, where chips of the name have several numbers and rates; 0: any
	sustained float64 // bytes a second that reads reach; 0: unknown
	decode    span    // tokens a second of V4 Flash with routed experts of 2 bits, at 4,096 tokens
	prefill   span    // tokens a second of a prompt of it, in chunks of 2,048 tokens
	two       span    // decode of two of them over RDMA
}

// span is an expected range, zero for none.
type span struct{ least, most float64 }

// macs are the chips with an expectation.
var macs = []mac{
	{"Apple M3 Ultra", 0, 692e9, span{33, 40}, span{350, 530}, span{}},
	{"Apple M4 Max", 40, 464e9, span{26, 33}, span{200, 300}, span{20, 26}},
	{"Apple M5 Max", 0, 0, span{28, 36}, span{220, 330}, span{}},
}

// Parts of the sustained rate that products reach, and the price of one of each thing that is
// counted, in seconds.
var (
	productShare = span{0.75, 0.95}
	stagePrice   = span{1.3e-6, 2.05e-6}
	waitPrice    = span{150e-6, 340e-6}
)

// macOf is the entry of a device whose GPU has so many cores, 0 if that is not known; nil if there
// is none.
func macOf(device string, cores int) *mac {
	for i := range macs {
		if of := macs[i].cores; of > 0 && cores > 0 && of != cores {
			continue
		}
		if strings.Contains(device, macs[i].name+")") {
			return &macs[i]
		}
	}
	return nil
}

// expectation is an expected range beside what was measured.
type expectation struct {
	span   span
	source string
}

// sourceOf is where expectations are explained.
const sourceOf = "docs/notes/metal.md#what-is-expected-of-a-mac"

// text says whether a value is expected: within, below or above the range.
func (e expectation) text(value float64, format func(float64) string) string {
	switch {
	case e.span == span{}:
		return "no expectation"
	case value < e.span.least:
		return format(e.span.least) + " to " + format(e.span.most) + ": **below**, " + e.source
	case value > e.span.most:
		return format(e.span.least) + " to " + format(e.span.most) + ": above, " + e.source
	}
	return format(e.span.least) + " to " + format(e.span.most) + ": within, " + e.source
}
