package main

import (
	"strings"

	"ringmaster/internal/flags"
	"ringmaster/model/synthetic"
)

// What flags with one of a few words take.
var (
	reduceWords  = []string{"sum", "exact"}
	simdWords    = []string{"auto", "portable", "avx2", "avx512", "amx", "neon"}
	encryptWords = []string{"on", "off", "tcp-only"}
	shareWords   = []string{"auto", "experts", "all", "helper", "auto:memory", "experts:memory", "all:memory"} // and shares by rank
)

// mostBody bounds flags about bodies of requests.
const mostBody = 1 << 40

// How flags are written that are parsed, for errors.
const (
	portsForm       = "a port or a range of ports such as 7701 or 7701-7708"
	sizeForm        = "a size with its unit, such as 20GiB or 20GB"
	memoryForm      = sizeForm + ", or unlimited"
	shareForm       = "experts, all, auto or helper, also with shares such as all:2,1,1 or experts:memory"
	stagesForm      = "a number of stages such as 2, or the layers of each such as 0-21,22-42 or 0-21:2,22-42:1"
	onLossForm      = "continue, continue:N with the fewest ranks, continue:N,TIME with how long a rank stays out, wait or fail"
	overrideForm    = "KEY=TYPE:VALUE with TYPE int, float, bool or str"
	activationsForm = "15 or 8, or both, separated by commas"
	expertsForm     = "a type of weights, such as q4_k, q8_0 or iq2_xxs"
)

func checkOverride(s string) error {
	_, typed, ok := strings.Cut(s, "=")
	kind, _, ok2 := strings.Cut(typed, ":")
	return flags.Formed(ok && ok2 && (kind == "int" || kind == "float" || kind == "bool" || kind == "str"))
}

func checkExperts(s string) error { return new(synthetic.Config).SetExperts(s) }
