package simulate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Rate is a measured speed of decoding.
type Rate struct {
	Sequences int     // in a step
	PerSecond float64 // tokens of all of them
}

// RateForm is how a Rate is written.
const RateForm = "SEQUENCES=TOKENS, such as 8=60"

// ParseRate reads a rate of decoding by the number of sequences.
func ParseRate(s string) (Rate, error) {
	number, rate, ok := strings.Cut(s, "=")
	n, err := strconv.Atoi(number)
	x, err2 := strconv.ParseFloat(rate, 64)
	if err = errors.Join(err, err2); err == nil && !(ok && n > 0 && x > 0 && x <= 1e9) {
		err = fmt.Errorf("expected %s", RateForm)
	}
	return Rate{Sequences: n, PerSecond: x}, err
}

// String is how ParseRate reads it.
func (r Rate) String() string { return fmt.Sprintf("%d=%v", r.Sequences, r.PerSecond) }
