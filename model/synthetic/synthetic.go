// Package synthetic makes deepseek4, deepseek41, deepseek2, deepseek32 and glm-dsa models of
// any shape with random weights: for tests, benchmarks and bug reports without a real model.
// The weights are seeded and scaled so that activations keep about unit variance through
// all layers. The same Config gives the same bytes on every host.
//
//	c, err := synthetic.Preset("tiny")
//	err = c.Set("n_expert", "33")
//	written, err := c.WriteFile("tiny.gguf")
//
// The metadata and tensors are those that the loaders of this program and of llama.cpp
// require. Every file has a small byte-level BPE vocabulary with the true marker tokens,
// and a chat template.
package synthetic

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"ringmaster/gguf"
)

// Config is the shape of a model. Start from a Preset.
type Config struct {
	Arch string // general.architecture: deepseek4, deepseek41, deepseek2, deepseek32 or glm-dsa
	Name string // general.name
	Seed uint64

	Layers  int
	Embd    int // width of the streams, D
	Vocab   int
	Heads   int // H
	HeadDim int
	RotDim  int
	QRank   int // of deepseek2 0 for a query projection of one matrix
	ORank   int // per group
	OGroups int
	Window  int

	Experts    int
	Used       int
	Shared     int // shared experts, as one of Shared*FF rows
	FF         int // rows of one expert
	HashLayers int

	IndexHeads int
	IndexDim   int
	TopK       int

	Streams  int // S
	Sinkhorn int
	Context  int

	// Ratios are the compression ratios of the layers (0, 4, 128, of deepseek41 0, 1, 2), at
	// least Layers long. If nil, Pattern ("flash" or "pro") determines them.
	Ratios  []int
	Pattern string

	RMSEps           float64
	HyperEps         float64
	WeightsScale     float64
	Clamp            float64
	RopeBase         float64
	CompressRopeBase float64
	YaRNFactor       float64
	YaRNContext      int

	Engram Engram // of deepseek41

	// Of all but deepseek4 and deepseek41. Of the fields above those have no HeadDim, ORank, OGroups,
	// Window, HashLayers, Streams, Sinkhorn, Ratios, Pattern, HyperEps, Clamp,
	// CompressRopeBase, and deepseek2 has no Index… and TopK.
	Latent Latent

	Types Types
	// LayerGate, LayerUp and LayerDown are the types of the routed experts
	// of single layers, in place of those of Types.
	LayerGate, LayerUp, LayerDown map[int]gguf.Type
	// TensorTypes are the types of single tensors by name, in place of all
	// the others: any that CanMake says, whether or not a loader takes it.
	TensorTypes map[string]gguf.Type

	// Holes leaves the large tensors empty: they read as zeros and take no disk
	// space. Norms, tables and the vocabulary are still real.
	Holes bool
	// Pre is the pre-tokenizer (tokenizer.ggml.pre), one of Pretokenizers; it
	// decides the markers of the vocabulary and the chat template too.
	Pre string
	// VocabOnly leaves all tensors out.
	VocabOnly bool
	// Alias uses the alternative tensor names found in published files and
	// joins gate and up of the routed experts (where their types are equal) in
	// one tensor. The weights are the same as without it.
	Alias bool
	// Scale adds to each matrix of NVFP4, but the embedding, the tensor of its scale: ScaleOnes,
	// which changes nothing, or ScaleRandom, for which the blocks are larger; "" for none.
	Scale string
	// Block is the form of a block for multi-token prediction, one of Blocks; "" for none.
	Block string
	// Parts above 1 splits the file.
	Parts int
}

// Types are the element types of a model's large tensors.
type Types struct {
	Gate, Up, Down gguf.Type // routed experts
	Dense          gguf.Type // attention and the shared expert
	Aux            gguf.Type // router, compressors, indexer, hyper-connections
	Embd           gguf.Type // token embedding
	Output         gguf.Type // output matrix
}

// flash is the true shape of DeepSeek V4 Flash.
var flash = Config{
	Arch: "deepseek4", Layers: 43, Embd: 4096, Vocab: 129280, Heads: 64, HeadDim: 512, RotDim: 64, QRank: 1024, ORank: 1024, OGroups: 8,
	Window: 128, Experts: 256, Used: 6, Shared: 1, FF: 2048, HashLayers: 3, IndexHeads: 64, IndexDim: 128, TopK: 512,
	Streams: 4, Sinkhorn: 20, Context: 1 << 20, Pattern: "flash", RMSEps: 1e-6, HyperEps: 1e-6, WeightsScale: 1.5,
	Clamp: 10, RopeBase: 10000, Pre: "joyai-llm", CompressRopeBase: 160000, YaRNFactor: 16, YaRNContext: 65536, Parts: 1, Seed: 1,
	Types: Types{gguf.Q4_K, gguf.Q4_K, gguf.Q4_K, gguf.Q8_0, gguf.F16, gguf.F16, gguf.Q8_0},
}

// presets change flash, or v3 if they are of deepseek2.
var presets = map[string]func(c *Config){
	"tiny": func(c *Config) {
		c.Layers, c.Embd, c.Vocab, c.Heads, c.HeadDim, c.QRank, c.ORank, c.OGroups = 6, 256, 512, 8, 256, 128, 64, 4
		c.Experts, c.FF, c.IndexHeads, c.TopK = 16, 256, 8, 64
	},
	"small256": func(c *Config) {
		c.Layers, c.Embd, c.Vocab, c.Heads, c.QRank, c.ORank, c.OGroups = 8, 1024, 4096, 16, 512, 256, 4
		c.FF, c.IndexHeads = 256, 16
	},
	"bench": func(c *Config) { c.Layers, c.Vocab, c.Experts = 6, 16384, 64 },
	"flash": func(c *Config) { c.Holes = true },
	"pro": func(c *Config) {
		c.Layers, c.Embd, c.Heads, c.QRank, c.OGroups = 61, 7168, 128, 1536, 16
		c.Experts, c.FF, c.TopK, c.WeightsScale, c.Pattern, c.Holes = 384, 3072, 1024, 2.5, "pro", true
	},
}

// Presets lists the names that Preset knows.
func Presets() []string {
	return slices.Concat(slices.Sorted(maps.Keys(presets)), slices.Sorted(maps.Keys(v41Presets)), slices.Sorted(maps.Keys(latentPresets)))
}

// Preset returns a named shape:
//
//	tiny      every kind of layer, about 19 MB
//	small256  256 experts, 6 used, 8 layers, about 1 GB
//	bench     V4 Flash's widths, 6 layers, 64 experts, 6.6 GB
//	flash     DeepSeek V4 Flash, its large tensors holes
//	pro       DeepSeek V4 Pro, its large tensors holes
//
// and of deepseek41
//
//	v41-tiny   every kind of layer, about 26 MB
//	small-v41  192 experts, 6 used, 10 layers, about 1 GB
//	bench-v41  V4.1 Flash's widths, 6 layers, 64 experts
//	v41        DeepSeek V4.1 Flash, its large tensors holes
//
// and of deepseek2
//
//	ds2-tiny       DeepSeek V3's switches, 22 MB
//	ds2lite-tiny   V2-Lite's, in the format of 2024
//	k2-tiny        Kimi K2's
//	glm-tiny       GLM-4.7-Flash's
//	small-v3       256 experts in 8 groups, 8 used, 8 layers, about 1 GB
//	bench-v3       V3's widths, 4 layers, 32 experts, about 5 GB
//	v2-lite, v2, v3, k2, moonlight, glm-flash   true shapes, their large tensors holes
//
// and with sparse attention
//
//	v32-tiny       DeepSeek V3.2's switches (deepseek32)
//	glm5-tiny      GLM-5.2's (glm-dsa), with layers that share an indexer
//	v32, glm5      true shapes, their large tensors holes
func Preset(name string) (Config, error) {
	c, change, ok := flash, presets[name], true
	if of41 := v41Presets[name]; of41 != nil {
		v41(&c)
		change = of41
	}
	if change == nil {
		c = v3
		change, ok = latentPresets[name]
	}
	if !ok {
		return Config{}, fmt.Errorf("unknown preset %q: want one of %s", name, strings.Join(Presets(), ", "))
	}
	c.Name = "synthetic " + name
	change(&c)
	return c, nil
}

// LayerRatios returns the compression ratios that the file gets: Ratios, or
// those of Pattern. Flash begins with two layers of ratio 0, Pro with two of
// 128; after those, 4 and 128 alternate.
func (c *Config) LayerRatios() []int {
	if c.Ratios != nil {
		return c.Ratios
	}
	first := 0
	if c.Pattern == "pro" {
		first = 128
	}
	ratios := make([]int, c.Layers)
	for i := range ratios {
		switch {
		case i < 2:
			ratios[i] = first
		case i%2 == 0:
			ratios[i] = 4
		default:
			ratios[i] = 128
		}
	}
	return ratios
}

// Writer lays out the model. Tensor data is made when the file is written. The
// error names the size or tensor that is invalid.
func (c *Config) Writer() (*gguf.Writer, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	w := gguf.NewWriter()
	w.SetWorkers(runtime.GOMAXPROCS(0))
	if err := w.SetParts(max(c.Parts, 1)); err != nil {
		return nil, err
	}
	vocabulary, tokens := c.vocabularyKeys()
	keys := c.streamKeys
	switch {
	case c.latent():
		keys = c.latentKeys
	case c.Arch == archEngram:
		keys = func() []pair { return c.engramKeys(tokens) }
	}
	pairs := c.general()
	if c.Block != BlockAlone {
		pairs = slices.Concat(pairs, keys(), vocabulary)
	}
	if err := put(w, pairs); err != nil {
		return nil, err
	}
	if c.VocabOnly {
		return w, nil
	}
	if err := c.addTensors(w); err != nil {
		return nil, err
	}
	return w, nil
}

// Written describes what WriteFile wrote.
type Written struct {
	Files       []string // the path, or with Parts above 1 those of the split set
	TensorBytes int64    // of all tensors, without padding
}

// WriteFile writes the model to path, or with Parts above 1 to the files of a
// split set. Its error names the invalid size or tensor, or the file.
func (c *Config) WriteFile(path string) (Written, error) {
	w, err := c.Writer()
	if err != nil {
		return Written{}, err
	}
	return Written{Files: w.Paths(path), TensorBytes: w.DataBytes()}, w.WriteFile(path)
}

// mostLayers is the most blocks of a file that the loader accepts.
const mostLayers = 4096

// mostVocab bounds the tokens, because their texts are made in memory. The published
// models have at most 262,144.
const mostVocab = 1 << 20

// check rejects shapes that no loader could accept.
func (c *Config) check() error {
	if c.Layers > mostLayers {
		return fmt.Errorf("n_layer is %d: want at most %d, the limit of the loader", c.Layers, mostLayers)
	}
	for _, s := range sizes {
		if v := *s.of(c); s.in(c.Arch) && v < s.least {
			return fmt.Errorf("%s is %d: want at least %d", s.key, v, s.least)
		}
	}
	if c.latent() {
		if err := c.checkLatent(); err != nil {
			return err
		}
		return c.checkCommon()
	}
	if c.Arch == archEngram {
		if err := c.checkEngram(); err != nil {
			return err
		}
		return c.checkCommon()
	}
	ratios := c.LayerRatios()
	switch {
	case c.Pattern != "flash" && c.Pattern != "pro":
		return fmt.Errorf("unknown pattern of ratios %q: want flash or pro", c.Pattern)
	case len(ratios) < c.Layers:
		return fmt.Errorf("%d ratios for %d layers", len(ratios), c.Layers)
	case c.QRank < 1 || c.Shared < 1:
		return fmt.Errorf("q_lora is %d and n_shared %d: want at least 1", c.QRank, c.Shared)
	case c.Heads%c.OGroups != 0:
		return fmt.Errorf("n_head %d is not a multiple of o_groups %d", c.Heads, c.OGroups)
	case c.RotDim > c.HeadDim || c.RotDim > c.IndexDim || c.RotDim%2 != 0:
		return fmt.Errorf("n_rot %d is odd or more than head_dim %d or idx_dim %d", c.RotDim, c.HeadDim, c.IndexDim)
	case c.IndexDim&(c.IndexDim-1) != 0:
		return fmt.Errorf("idx_dim %d is not a power of two, which the indexer's Hadamard transform needs", c.IndexDim)
	}
	for i, r := range ratios {
		if r != 0 && r != 4 && r != 128 {
			return fmt.Errorf("ratio %d of layer %d: want 0, 4 or 128", r, i)
		}
	}
	return c.checkCommon()
}

// checkCommon is the part of check for all architectures.
func (c *Config) checkCommon() error {
	if err := c.checkScale(); err != nil {
		return err
	}
	if err := c.checkBlock(); err != nil {
		return err
	}
	f, known := families[c.Pre]
	switch {
	case c.Used > c.Experts:
		return fmt.Errorf("n_used %d is more than n_expert %d", c.Used, c.Experts)
	case !known:
		return fmt.Errorf("unknown pre-tokenizer %q: want one of %s", c.Pre, strings.Join(Pretokenizers(), ", "))
	case c.Vocab < f.leastVocab():
		return fmt.Errorf("n_vocab %d: want at least %d (the bytes and the markers)", c.Vocab, f.leastVocab())
	case c.Vocab > mostVocab:
		return fmt.Errorf("n_vocab %d: want at most %d", c.Vocab, mostVocab)
	}
	for what, m := range map[string]map[int]gguf.Type{"gate": c.LayerGate, "up": c.LayerUp, "down": c.LayerDown} {
		for i := range m {
			if i < 0 || i >= c.Layers {
				return fmt.Errorf("a type for the %s experts of layer %d of %d", what, i, c.Layers)
			}
		}
	}
	return nil
}
