// Package testenv is shared by the tests of all packages: it decides how much of a test
// runs, finds ports, and reads and writes files.
//
// There are two forms. The fast one is what go test does by itself: nearly every feature
// once. The full one (RINGMASTER_FULL=1, scripts/test.sh --full) adds the products: more
// shapes, seeds and faults, other compilers, sanitizers, guests, other people's programs.
// A campaign runs every combination of something, takes up to hours and is started by
// hand for one package with the flag -exhaustive.
//
// A test that leaves something out calls Need or Rest, so that it is reported as skipped,
// with the level at which it runs. No other variable, flag or use of testing.Short
// decides this. An attribute of the test tells tests/report the level, because the text
// of a reason could be invented.
package testenv

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Variable names the environment variable that sets the level.
const Variable = "RINGMASTER_FULL"

// exhaustive asks for the campaigns of a package.
var exhaustive = flag.Bool("exhaustive", false, "run every combination, which takes up to hours")

// Level is how much of a test runs.
type Level int

const (
	Fast       Level = iota // most features once
	Full                    // what continuous integration runs
	Exhaustive              // a campaign, by hand
)

// String returns how to ask for the level.
func (l Level) String() string {
	switch l {
	case Fast:
		return "every run"
	case Full:
		return Variable + "=1"
	default:
		return "-exhaustive"
	}
}

// Attribute is the key of the attribute that a skipped test gets. Its value is the level
// at which it runs: "full" or "exhaustive".
const Attribute = "level"

// level parses the value of Variable. It panics on an unknown one, because a run at
// another level than the one asked for proves the wrong thing.
func level(value string) Level {
	switch value {
	case "", "0":
		return Fast
	case "1":
		return Full
	default:
		panic(fmt.Sprintf("%s=%s: want 1 or nothing; a campaign is run with the flag -exhaustive", Variable, value))
	}
}

// At reports whether tests run at level l or a higher one.
func At(l Level) bool { return *exhaustive || level(os.Getenv(Variable)) >= l }

// Need skips the test below level l. what names what is left out.
func Need(t testing.TB, l Level, what string) {
	t.Helper()
	if At(l) {
		return
	}
	value := "full"
	if l == Exhaustive {
		value = "exhaustive"
	}
	t.Attr(Attribute, value)
	t.Skipf("NOT CHECKED: %s runs with %v", what, l)
}

// Rest reports whether the rest of a test runs, at level l and above. Below, it adds a
// skipped subtest that names what is left out.
func Rest(t *testing.T, l Level, what string) bool {
	t.Helper()
	if At(l) {
		return true
	}
	t.Run("rest", func(t *testing.T) { Need(t, l, what) })
	return false
}
