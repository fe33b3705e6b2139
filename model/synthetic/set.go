package synthetic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ringmaster/gguf"
)

// option is a number that Set changes, by its name on a command line.
type option[T int | float64] struct {
	key   string
	least T        // smallest sensible value
	archs []string // the architectures that have it, or nil for all
	of    func(c *Config) *T
}

// in reports whether an architecture has the number.
func (o option[T]) in(arch string) bool { return o.archs == nil || slices.Contains(o.archs, arch) }

const (
	archStreams = "deepseek4"
	archEngram  = "deepseek41"
	archLatent  = "deepseek2"
	archV32     = "deepseek32"
	archGLM     = "glm-dsa"
)

// The architectures with some numbers in common.
var (
	streams = []string{archStreams, archEngram}
	hashed  = []string{archStreams}
	engrams = []string{archEngram}
	latent  = []string{archLatent, archV32, archGLM}
	indexed = []string{archStreams, archEngram, archV32, archGLM}
	sparse  = []string{archV32, archGLM}
)

// latent reports whether the architecture has multi-head latent attention.
func (c *Config) latent() bool { return slices.Contains(latent, c.Arch) }

// sparse reports whether it has an indexer over the latent rows.
func (c *Config) sparse() bool { return slices.Contains(sparse, c.Arch) }

// sizes are the integers that Set changes.
var sizes = []option[int]{
	{"n_layer", 1, nil, func(c *Config) *int { return &c.Layers }},
	{"n_embd", 1, nil, func(c *Config) *int { return &c.Embd }},
	{"n_vocab", 1, nil, func(c *Config) *int { return &c.Vocab }},
	{"n_head", 1, nil, func(c *Config) *int { return &c.Heads }},
	{"head_dim", 2, streams, func(c *Config) *int { return &c.HeadDim }},
	{"n_rot", 2, nil, func(c *Config) *int { return &c.RotDim }},
	{"q_lora", 0, nil, func(c *Config) *int { return &c.QRank }},
	{"o_lora", 1, streams, func(c *Config) *int { return &c.ORank }},
	{"o_groups", 1, streams, func(c *Config) *int { return &c.OGroups }},
	{"swa", 1, streams, func(c *Config) *int { return &c.Window }},
	{"n_expert", 1, nil, func(c *Config) *int { return &c.Experts }},
	{"n_used", 1, nil, func(c *Config) *int { return &c.Used }},
	{"n_shared", 0, nil, func(c *Config) *int { return &c.Shared }},
	{"n_ff", 1, nil, func(c *Config) *int { return &c.FF }},
	{"n_hash", 0, hashed, func(c *Config) *int { return &c.HashLayers }},
	{"idx_head", 1, indexed, func(c *Config) *int { return &c.IndexHeads }},
	{"idx_dim", 2, indexed, func(c *Config) *int { return &c.IndexDim }},
	{"idx_topk", 1, indexed, func(c *Config) *int { return &c.TopK }},
	{"hc", 1, streams, func(c *Config) *int { return &c.Streams }},
	{"sinkhorn", 1, streams, func(c *Config) *int { return &c.Sinkhorn }},
	{"src_every", 1, engrams, func(c *Config) *int { return &c.Engram.SourceEvery }},
	{"ix_every", 1, engrams, func(c *Config) *int { return &c.Engram.IndexEvery }},
	{"cand_blocks", 1, engrams, func(c *Config) *int { return &c.Engram.Kept }},
	{"cand_size", 1, engrams, func(c *Config) *int { return &c.Engram.Size }},
	{"eg_head", 1, engrams, func(c *Config) *int { return &c.Engram.Heads }},
	{"eg_key", 1, engrams, func(c *Config) *int { return &c.Engram.Width }},
	{"eg_gram", 2, engrams, func(c *Config) *int { return &c.Engram.Gram }},
	{"eg_vocab", 2, engrams, func(c *Config) *int { return &c.Engram.LeastPrime }},
	{"kv_lora", 1, latent, func(c *Config) *int { return &c.Latent.Rank }},
	{"nope", 1, latent, func(c *Config) *int { return &c.Latent.Nope }},
	{"v_dim", 1, latent, func(c *Config) *int { return &c.Latent.Value }},
	{"n_dense", 0, latent, func(c *Config) *int { return &c.Latent.Dense }},
	{"ff_dense", 1, latent, func(c *Config) *int { return &c.Latent.DenseFF }},
	{"gating", 0, latent, func(c *Config) *int { return &c.Latent.Gating }},
	{"groups", 0, latent, func(c *Config) *int { return &c.Latent.Groups }},
	{"groups_used", 0, latent, func(c *Config) *int { return &c.Latent.GroupsUsed }},
	{"bias", 0, latent, func(c *Config) *int { return &c.Latent.Bias }},
	{"norm", 0, latent, func(c *Config) *int { return &c.Latent.Norm }},
	{"idx_every", 0, sparse, func(c *Config) *int { return &c.Latent.IndexEvery }},
	{"mla", 0, latent, func(c *Config) *int { return &c.Latent.Split }},
	{"ctx", 1, nil, func(c *Config) *int { return &c.Context }},
	{"yarn_ctx", 1, nil, func(c *Config) *int { return &c.YaRNContext }},
}

// factors are the real numbers that Set changes.
var factors = []option[float64]{
	{"rms_eps", 0, nil, func(c *Config) *float64 { return &c.RMSEps }},
	{"hc_eps", 0, streams, func(c *Config) *float64 { return &c.HyperEps }},
	{"scale", 0, nil, func(c *Config) *float64 { return &c.WeightsScale }},
	{"clamp", 0, streams, func(c *Config) *float64 { return &c.Clamp }},
	{"rope_base", 0, nil, func(c *Config) *float64 { return &c.RopeBase }},
	{"compress_rope_base", 0, streams, func(c *Config) *float64 { return &c.CompressRopeBase }},
	{"yarn_factor", 0, nil, func(c *Config) *float64 { return &c.YaRNFactor }},
	{"yarn_log", 0, latent, func(c *Config) *float64 { return &c.Latent.YaRNLog }},
	{"yarn_fast", 0, latent, func(c *Config) *float64 { return &c.Latent.BetaFast }},
	{"yarn_slow", 0, latent, func(c *Config) *float64 { return &c.Latent.BetaSlow }},
}

// Keys lists the names that Set knows.
func Keys() []string {
	var keys []string
	for _, s := range sizes {
		keys = append(keys, s.key)
	}
	for _, f := range factors {
		keys = append(keys, f.key)
	}
	return keys
}

// Set changes one size or factor, named as in Keys, that the architecture has.
func (c *Config) Set(key, value string) error {
	for _, s := range sizes {
		if s.key != key {
			continue
		}
		if !s.in(c.Arch) {
			return fmt.Errorf("%s is not a size of %s", key, c.Arch)
		}
		v, err := strconv.Atoi(value)
		if err != nil || v < s.least || v > 1<<31-1 {
			return fmt.Errorf("%s=%q: want a whole number of at least %d", key, value, s.least)
		}
		*s.of(c) = v
		return nil
	}
	for _, f := range factors {
		if f.key != key {
			continue
		}
		if !f.in(c.Arch) {
			return fmt.Errorf("%s is not a number of %s", key, c.Arch)
		}
		v, err := strconv.ParseFloat(value, 32)
		if err != nil || !(v >= 0) {
			return fmt.Errorf("%s=%q: want a number of at least 0", key, value)
		}
		*f.of(c) = v
		return nil
	}
	return fmt.Errorf("unknown name %q: want one of %s", key, strings.Join(Keys(), ", "))
}

// SetArch makes a shape with multi-head latent attention one of another architecture:
// deepseek2, deepseek32 or glm-dsa. One that gains an indexer without having had one
// gets that of DeepSeek V3.2.
func (c *Config) SetArch(arch string) error {
	if !c.latent() || !slices.Contains(latent, arch) {
		return fmt.Errorf("a shape of %s cannot be one of %q: want one of %s", c.Arch, arch, strings.Join(latent, ", "))
	}
	if c.Arch = arch; c.sparse() && c.TopK == 0 {
		c.IndexHeads, c.IndexDim, c.TopK = 64, 128, 2048
	}
	return nil
}

// SetRatios sets the pattern of compression ratios: "flash", "pro", or
// comma-separated ratios. There may be more of these than Layers, as in files
// with layers for draft tokens, but not fewer.
func (c *Config) SetRatios(s string) error {
	if c.Arch != archStreams {
		return fmt.Errorf("%s takes no list of ratios", c.Arch)
	}
	if s == "flash" || s == "pro" {
		c.Pattern, c.Ratios = s, nil
		return nil
	}
	var ratios []int
	for f := range strings.SplitSeq(s, ",") {
		r, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || r != 0 && r != 4 && r != 128 {
			return fmt.Errorf("ratio %q: want flash, pro, or 0, 4 and 128 with commas", f)
		}
		ratios = append(ratios, r)
	}
	c.Ratios = ratios
	return nil
}

// TypeNames lists the types for which random weights can be made, in lower
// case.
func TypeNames() []string {
	var names []string
	for t := range drawers {
		names = append(names, strings.ToLower(t.String()))
	}
	slices.Sort(names)
	return names
}

// ParseType parses the name of a type, such as "q4_k", in upper or lower case.
func ParseType(name string) (gguf.Type, error) {
	for t := range drawers {
		if strings.EqualFold(t.String(), name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("unknown type %q: want one of %s", name, strings.Join(TypeNames(), ", "))
}

// ParseLayerTypes parses a list such as "3=q6_k,4=mxfp4".
func ParseLayerTypes(s string) (map[int]gguf.Type, error) {
	types := map[int]gguf.Type{}
	for f := range strings.SplitSeq(s, ",") {
		layer, name, ok := strings.Cut(strings.TrimSpace(f), "=")
		i, err := strconv.Atoi(layer)
		if !ok || err != nil || i < 0 {
			return nil, fmt.Errorf("%q: want LAYER=TYPE", f)
		}
		if types[i], err = ParseType(name); err != nil {
			return nil, err
		}
	}
	return types, nil
}

// SetExperts sets the types of the routed experts: one type for all three
// matrices, or "iq2": IQ2_XXS for gate and up with Q2_K for down, as in the
// smallest files of real models.
func (c *Config) SetExperts(name string) error {
	if name == "iq2" {
		c.Types.Gate, c.Types.Up, c.Types.Down = gguf.IQ2XXS, gguf.IQ2XXS, gguf.Q2_K
		return nil
	}
	t, err := ParseType(name)
	if err != nil {
		return err
	}
	c.Types.Gate, c.Types.Up, c.Types.Down = t, t, t
	return nil
}
