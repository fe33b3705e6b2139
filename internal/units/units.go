// Package units formats quantities for people, one way in logs, errors, plans and pages:
// sizes in binary units, durations, counted nouns.
package units

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const names = "KMGTPE"

// Bytes formats a size in binary units with three digits or more: 512 B, 1.5 KiB, 12.00 GiB.
func Bytes[N ~int | ~int64 | ~uint64](n N) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < len(names)-1 {
		value, unit = value/(1<<10), unit+1
	}
	digits := 1
	if unit >= 2 {
		digits = 2 // a tenth of a GiB is more than a token's state
	}
	return fmt.Sprintf("%.*f %ciB", digits, value, names[unit])
}

// Count is a number with its noun: 1 thread, 2 threads.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// ParseBytes reads a size such as 24GiB, 512 MiB or 1000000; 0 for "".
func ParseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := s, int64(1)
	for i := range 4 {
		if rest, ok := strings.CutSuffix(s, names[i:i+1]+"iB"); ok {
			number, unit = rest, 1<<(10*(i+1))
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v > 0) || v*float64(unit) > 1<<60 {
		return 0, fmt.Errorf("%q is not a size like 24GiB", s)
	}
	return int64(v * float64(unit)), nil
}

// Duration formats a duration without units that are zero: 1h, not 1h0m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
