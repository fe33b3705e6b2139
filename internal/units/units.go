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

// ParseBytes reads a size such as 24GiB, 512 MiB, 20GB or 100 B; 0 for "". A number without
// a unit is refused, because whoever writes 20 does not mean 20 bytes.
func ParseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := cutUnit(s)
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || !(v > 0) || v*max(unit, 1) > 1<<60:
		return 0, fmt.Errorf("%q is not a size like 24GiB or 24GB", s)
	case unit == 0:
		return 0, fmt.Errorf("%q has no unit; write %[1]sGiB, %[1]sGB, %[1]sMiB or another one", s)
	}
	return int64(v * unit), nil
}

// cutUnit cuts the unit off a size, and returns how many bytes it is; 0 without a unit.
// Units have powers of 1024 (KiB) or of 1000 (KB, also kB).
func cutUnit(s string) (number string, bytes float64) {
	rest, ok := strings.CutSuffix(s, "B")
	if !ok {
		return s, 0
	}
	factor := 1000.0
	if binary, ok := strings.CutSuffix(rest, "i"); ok {
		rest, factor = binary, 1024
	}
	unit := 1.0
	for i := range 4 {
		unit *= factor
		if number, ok := strings.CutSuffix(rest, names[i:i+1]); ok {
			return number, unit
		}
	}
	switch number, ok := strings.CutSuffix(rest, "k"); {
	case factor != 1000: // iB alone
		return s, 0
	case ok:
		return number, factor
	}
	return rest, 1
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
