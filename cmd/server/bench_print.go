package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ringmaster/kernels/profile"
)

// measurement is one line of bench --json.
type measurement struct {
	What      string    `json:"what"` // prefill or decode
	N         int       `json:"n"`    // tokens of a sequence
	Sequences int       `json:"sequences"`
	Depth     int       `json:"depth"` // tokens before them
	Threads   int       `json:"threads"`
	Seconds   []float64 `json:"seconds"` // of each repetition
	LoadS     float64   `json:"load_s"`
	// FirstTokenS is the time from the start of loading to the first token of a
	// prompt of one token.
	FirstTokenS float64 `json:"first_token_s"`

	// PeakMiB is the largest resident memory so far. FileMiB of it after the
	// measurement are pages of files, of the model above all, which the system
	// can take back; OwnMiB are the process's own. 0 where the system does not
	// tell them apart.
	PeakMiB float64 `json:"peak_mib"`
	FileMiB float64 `json:"file_mib,omitempty"`
	OwnMiB  float64 `json:"own_mib,omitempty"`

	// BytesPerToken is what a decode reads of the model's tensors for one token;
	// in a step of several sequences, what they share is counted once.
	BytesPerToken int64 `json:"bytes_per_token,omitempty"`
	// StreamGBs is how fast the same threads read memory alone, in 10^9 bytes a
	// second: the best pass and the median. StreamError is why it is missing.
	StreamGBs       float64 `json:"stream_gbs,omitempty"`
	StreamMedianGBs float64 `json:"stream_median_gbs,omitempty"`
	StreamError     string  `json:"stream_error,omitempty"`

	// Ranks are the times of each rank of a group during the repetitions.
	Ranks []rankTimes `json:"ranks,omitempty"`

	ops []profile.Op // of all repetitions, with --profile
}

// median is the middle one of xs, the upper of two.
func median(xs []float64) float64 { return slices.Sorted(slices.Values(xs))[len(xs)/2] }

func (b *bench) print(m *measurement) error {
	if b.json {
		return json.NewEncoder(b.w).Encode(m)
	}
	tokens := float64(m.N * m.Sequences)
	what := fmt.Sprintf("%-8s %5d tokens", m.What, m.N)
	if m.What == "decode" && (m.Depth != decodeDepth || m.Sequences > 1) {
		what += fmt.Sprintf(" after %d, %d sequences", m.Depth, m.Sequences)
	}
	if _, err := fmt.Fprintf(b.w, "%s  %d threads  %8.2f t/s (median of %d, %.2f to %.2f)\n%s",
		what, m.Threads, tokens/median(m.Seconds), len(m.Seconds),
		tokens/slices.Max(m.Seconds), tokens/slices.Min(m.Seconds), m.rates()); err != nil {
		return err
	}
	if b.profile {
		steps := len(m.Seconds) * m.N
		if m.What == "prefill" {
			steps = len(m.Seconds) // a whole prefill is the step of the table
		}
		total := 0.0
		for _, s := range m.Seconds {
			total += s
		}
		if err := profile.Write(b.w, m.ops, time.Duration(total*float64(time.Second)), steps); err != nil {
			return err
		}
	}
	if len(m.Ranks) == 0 {
		return nil
	}
	return printRanks(b.w, m.Ranks, b.layers)
}

// rates is the line of a decode that sets its reading beside the memory's rate.
func (m *measurement) rates() string {
	if m.BytesPerToken == 0 {
		return ""
	}
	rate := float64(m.BytesPerToken) * float64(m.N*m.Sequences) / median(m.Seconds) / 1e9
	line := fmt.Sprintf("%9sreads %s a token, %.1f GB/s", "", decimal(m.BytesPerToken), rate)
	switch {
	case m.StreamGBs > 0:
		line += fmt.Sprintf(": %.2f of the %.1f GB/s that %d threads read (median %.1f)",
			rate/m.StreamGBs, m.StreamGBs, m.Threads, m.StreamMedianGBs)
	case m.StreamError != "":
		line += "; the memory's rate is not measured: " + m.StreamError
	}
	return line + "\n"
}

// decimal is n bytes in MB or GB.
func decimal(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// printWhole prints what is of the whole run; last is its last measurement.
func (b *bench) printWhole(last *measurement) error {
	line := fmt.Sprintf("load %.2f s, first token after %.2f s; peak memory %.0f MiB", last.LoadS, last.FirstTokenS, last.PeakMiB)
	if last.FileMiB > 0 {
		line += fmt.Sprintf(", at the end %.0f MiB of files and %.0f MiB its own (%.2f of them)",
			last.FileMiB, last.OwnMiB, last.OwnMiB/last.FileMiB)
	}
	_, err := fmt.Fprintln(b.w, line)
	return err
}
