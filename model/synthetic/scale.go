package synthetic

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ringmaster/gguf"
)

// The values of Config.Scale.
const (
	ScaleOnes   = "ones"
	ScaleRandom = "random"
)

// Scales lists the values of Config.Scale.
func Scales() []string { return []string{ScaleOnes, ScaleRandom} }

// checkScale rejects values that do not exist, and names that have no scales.
func (c *Config) checkScale() error {
	switch {
	case c.Scale == "":
		return nil
	case !slices.Contains(Scales(), c.Scale):
		return fmt.Errorf("unknown scales %q: want %s", c.Scale, strings.Join(Scales(), " or "))
	case c.Alias:
		return fmt.Errorf("files with other tensor names have no scales")
	}
	return nil
}

// meanScale is the geometric mean of random scales.
const meanScale = 1. / 64

// scale adds the scales of a matrix, if it has some: one, or of ScaleRandom one for each expert.
// It returns the factor of the standard deviation of the blocks.
func (m *maker) scale(name string, t gguf.Type) float64 {
	base, ok := strings.CutSuffix(name, ".weight")
	if m.c.Scale == "" || t != gguf.NVFP4 || !ok || base == "token_embd" {
		return 1
	}
	value, by, n := constant(1), 1., 1
	if m.c.Scale == ScaleRandom {
		value, by = func(s source, _ int) float64 { return meanScale * math.Exp2(2*s.Float64()-1) }, 1/meanScale
		if strings.HasSuffix(base, "_exps") {
			n = m.c.Experts
		}
	}
	m.vector(base+".scale", gguf.F32, value, n)
	return by
}
