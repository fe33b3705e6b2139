package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"ringmaster/internal/simulate"
)

// ReadRates reads the lines of bench --json. It returns the best rate of a prefill, and
// the rate of decoding by the number of sequences, each from its last line.
func ReadRates(name string) (prefill float64, decode []simulate.Rate, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, nil, fmt.Errorf("--bench: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	bits := -1 // of the lines before
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var m Measurement
		err := json.Unmarshal(lines.Bytes(), &m)
		if err == nil && m.What == "comparison" {
			continue // of measurements that have lines of their own
		}
		if err != nil || len(m.Seconds) == 0 || m.N < 1 || m.Drafts > 0 || m.Sequences < 1 || median(m.Seconds) <= 0 {
			return 0, nil, fmt.Errorf("--bench: line %d of %s is not a measurement of bench --json", n, name)
		}
		if bits >= 0 && m.Activations != bits {
			return 0, nil, fmt.Errorf("--bench: line %d of %s has another precision than the lines before; run bench with one value of --activations", n, name)
		}
		bits = m.Activations
		rate := float64(m.N*m.Sequences) / median(m.Seconds)
		if m.What == "prefill" {
			prefill = max(prefill, rate)
			continue
		}
		decode = slices.DeleteFunc(decode, func(r simulate.Rate) bool { return r.Sequences == m.Sequences })
		decode = append(decode, simulate.Rate{Sequences: m.Sequences, PerSecond: rate})
	}
	if err := lines.Err(); err != nil {
		return 0, nil, fmt.Errorf("--bench: %s: %w", name, err)
	}
	if prefill == 0 || len(decode) == 0 {
		return 0, nil, fmt.Errorf("--bench: %s must have a prefill and a decode, it has %d rates of decoding and a prefill of %.1f tokens a second", name, len(decode), prefill)
	}
	return prefill, decode, nil
}
