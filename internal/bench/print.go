package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ringmaster/internal/units"
	"ringmaster/kernels/profile"
)

// Measurement is one line of bench --json.
type Measurement struct {
	What      string `json:"what"` // prefill or decode
	N         int    `json:"n"`    // tokens of a sequence
	Sequences int    `json:"sequences"`
	Drafts    int    `json:"drafts,omitempty"` // of each sequence in a step, run and not kept
	// Activations is the bits of the activations, 0 if only one precision is measured.
	Activations int `json:"activations,omitempty"`

	Depth   int       `json:"depth"` // tokens of a sequence before the measurement
	Threads int       `json:"threads"`
	Seconds []float64 `json:"seconds"` // of each repetition
	LoadS   float64   `json:"load_s"`
	// FirstTokenS is the time from the start of loading to the first token after
	// a prompt of one token.
	FirstTokenS float64 `json:"first_token_s"`

	// PeakMiB is the peak resident memory so far. FileMiB is the file-backed part
	// of the resident memory after the measurement, mostly the model, which the
	// system can reclaim, and HugeMiB is how much of it is mapped as huge pages; OwnMiB
	// is the anonymous part. They are 0 if the system does not distinguish them.
	PeakMiB float64 `json:"peak_mib"`
	FileMiB float64 `json:"file_mib,omitempty"`
	HugeMiB float64 `json:"huge_mib,omitempty"`
	OwnMiB  float64 `json:"own_mib,omitempty"`

	// BytesPerToken is how many bytes of the model's tensors a decode reads per token;
	// bytes that the sequences of a step share count once.
	BytesPerToken int64 `json:"bytes_per_token,omitempty"`
	// StreamGBs is the memory bandwidth that the same threads reach when they only read,
	// in 10^9 bytes per second: the best pass and the median. StreamError says why it is
	// missing.
	StreamGBs       float64 `json:"stream_gbs,omitempty"`
	StreamMedianGBs float64 `json:"stream_median_gbs,omitempty"`
	StreamError     string  `json:"stream_error,omitempty"`

	// ExpectedS is the expected time of a repetition on this group, in seconds, and
	// ExpectedError the cost model's estimate of its relative error; both are 0 without a
	// group.
	ExpectedS     float64 `json:"expected_s,omitempty"`
	ExpectedError float64 `json:"expected_error,omitempty"`

	// ExpectedRanks splits the expectation into each rank's computing and waiting, nil
	// without a measured group.
	ExpectedRanks []ExpectedTimes `json:"expected_ranks,omitempty"`

	// Ranks has the times of each rank of a group.
	Ranks []RankTimes `json:"ranks,omitempty"`

	ops []profile.Op // of all repetitions, with --profile

	// For a report: what the repetitions asked of a GPU, and the ops of one more.
	onDevice    onDevice
	profiled    []profile.Op
	profileTime time.Duration
}

// median returns the middle element of xs, the upper one of two.
func median(xs []float64) float64 { return slices.Sorted(slices.Values(xs))[len(xs)/2] }

func (b *bench) print(m *Measurement) error {
	if b.o.JSON {
		return json.NewEncoder(b.w).Encode(m)
	}
	tokens := float64(m.N * m.Sequences)
	what := fmt.Sprintf("%-8s %5d tokens", m.What, m.N)
	if m.What == "decode" && (m.Depth != DefaultDepth || m.Sequences > 1) {
		what += fmt.Sprintf(" after %d, %d sequences", m.Depth, m.Sequences)
	}
	if m.Drafts > 0 {
		what += ", " + units.Count(m.Drafts, "wrong draft")
	}
	if m.Activations > 0 {
		what += fmt.Sprintf(", %d-bit activations", m.Activations)
	}
	if _, err := fmt.Fprintf(b.w, "%s  %d threads  %8.2f t/s (median of %d, %.2f to %.2f)\n%s",
		what, m.Threads, tokens/median(m.Seconds), len(m.Seconds),
		tokens/slices.Max(m.Seconds), tokens/slices.Min(m.Seconds), m.rates()); err != nil {
		return err
	}
	if m.ExpectedS > 0 {
		if _, err := fmt.Fprintf(b.w, "%9sexpected %.2f t/s ± %.0f %%, %.2f of the measured time\n", "", tokens/m.ExpectedS,
			100*m.ExpectedError, m.ExpectedS/median(m.Seconds)); err != nil {
			return err
		}
	}
	if b.o.Profile {
		total := 0.0
		for _, s := range m.Seconds {
			total += s
		}
		if err := profile.Write(b.w, m.ops, time.Duration(total*float64(time.Second)), len(m.Seconds)*m.steps()); err != nil {
			return err
		}
	}
	if len(m.Ranks) == 0 {
		return nil
	}
	return printRanks(b.w, m.Ranks, m.ExpectedRanks, len(m.Seconds), b.o.Layers)
}

// rates returns the line that compares the bytes read by a decode with the memory
// bandwidth; empty for a prefill.
func (m *Measurement) rates() string {
	if m.BytesPerToken == 0 {
		return ""
	}
	rate := float64(m.BytesPerToken) * float64(m.N*m.Sequences) / median(m.Seconds) / 1e9
	line := fmt.Sprintf("%9sreads %s per token, %.1f GB/s", "", units.Bytes(m.BytesPerToken), rate)
	switch {
	case m.StreamGBs > 0:
		line += fmt.Sprintf(": %.2f of the memory bandwidth of %.1f GB/s with %s (median %.1f)",
			rate/m.StreamGBs, m.StreamGBs, units.Count(m.Threads, "thread"), m.StreamMedianGBs)
	case m.StreamError != "":
		line += "; memory bandwidth not measured: " + m.StreamError
	}
	return line + "\n"
}

// printSummary prints the figures of the whole run; last is its last measurement.
func (b *bench) printSummary(last *Measurement) error {
	line := fmt.Sprintf("load %.2f s, first token after %.2f s; peak memory %.0f MiB", last.LoadS, last.FirstTokenS, last.PeakMiB)
	if last.FileMiB > 0 {
		line += fmt.Sprintf("; at the end %.0f MiB file-backed (%.0f in huge pages) and %.0f MiB anonymous (ratio %.2f)",
			last.FileMiB, last.HugeMiB, last.OwnMiB, last.OwnMiB/last.FileMiB)
	}
	_, err := fmt.Fprintln(b.w, line)
	return err
}
