// Command mkmodel writes deepseek4, deepseek41, deepseek2, deepseek32 and glm-dsa model files of any shape with random
// weights: for tests, benchmarks and bug reports without a real model.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/gguf"
	"ringmaster/internal/safetext"
	"ringmaster/internal/settings"
	"ringmaster/model/synthetic"
)

func main() {
	c := command(time.Now)
	c.SetOut(safetext.NewWriter(os.Stdout))
	c.SetErr(safetext.NewWriter(os.Stderr))
	if err := c.Execute(); err != nil {
		os.Exit(1) // cobra has printed the error
	}
}

// envPrefix starts the environment variable of every flag: --layer-down is
// RINGMASTER_MKMODEL_LAYER_DOWN. It keeps them apart from the server's
// variables.
const envPrefix = "RINGMASTER_MKMODEL_"

// options are the flags that are not stored directly in a synthetic.Config.
type options struct {
	preset, arch, out             string
	seed                          uint64
	set                           []string
	ratios, pre                   string
	experts, gate, up, down       string
	dense, aux, embd, output      string
	layerExperts                  string
	scale                         string
	layerGate, layerUp, layerDown string
	split                         int
	mtp                           string
	holes, vocabOnly, alias       bool
	presetGiven                   bool
	holesGiven                    bool // --holes or its variable was given: otherwise the preset decides
}

func command(now func() time.Time) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "mkmodel --preset NAME --out FILE",
		Short: "Write a GGUF of DeepSeek's and GLM's architectures with seeded random weights",
		Long: `Write a deepseek4, deepseek41, deepseek2, deepseek32 or glm-dsa GGUF with seeded random weights. The same flags give the same bytes.

Presets:
  tiny      every kind of layer, 19 MB
  small256  256 experts, 6 used, 8 layers, 1 GB
  bench     V4 Flash's widths, 6 layers, 64 experts, 6.6 GB
  flash     V4 Flash, tensor data left as holes (a sparse file)
  pro       V4 Pro, tensor data left as holes (a sparse file)
and of the architecture deepseek41
  v41-tiny  every kind of layer of V4.1, 26 MB
  small-v41 192 experts, 6 used, 10 layers, 1 GB
  bench-v41 V4.1 Flash's widths, 6 layers, 64 experts
  v41       V4.1 Flash, tensor data left as holes
and of the architecture deepseek2
  ds2-tiny, ds2lite-tiny, k2-tiny, glm-tiny   the switches of V3, V2-Lite, Kimi K2, GLM-4.7-Flash
  small-v3  256 experts in 8 groups, 8 used, 8 layers, 1 GB
  bench-v3  V3's widths, 4 layers, 32 experts, 5 GB
  v2-lite, v2, v3, k2, moonlight, glm-flash   true shapes, tensor data left as holes
and with sparse attention
  v32-tiny, glm5-tiny   the switches of V3.2 (deepseek32) and of GLM-5.2 (glm-dsa)
  v32, glm5   true shapes, tensor data left as holes

Types: ` + strings.Join(synthetic.TypeNames(), " ") + `
Names for --set: ` + strings.Join(synthetic.Keys(), " ") + `

Each flag has an environment variable, used when the flag is not given:
--layer-down is ` + settings.Variable(envPrefix, "layer-down") + `.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := settings.FromEnvironment(cmd.Flags(), envPrefix, os.LookupEnv, settings.Origins{})
			o.presetGiven = cmd.Flags().Changed("preset")
			o.holesGiven = cmd.Flags().Changed("holes")
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.OutOrStdout(), &o, now)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.preset, "preset", "tiny", "shape: "+strings.Join(synthetic.Presets(), ", "))
	f.StringVar(&o.arch, "arch", "", "architecture: deepseek4, deepseek41, deepseek2, deepseek32 or glm-dsa (default that of the preset);\nwithout --preset its tiny one, with a preset of one of the last three its shape as another of them")
	f.StringVarP(&o.out, "out", "o", "", "the GGUF to write")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the weights")
	f.StringSliceVar(&o.set, "set", nil, "change a size, e.g. --set n_layer=4,n_expert=33")
	f.StringVar(&o.ratios, "ratios", "", "compression ratios of the layers: flash, pro, or a list such as 128,128,4\n(a list also sets the number of layers, unless --set n_layer does)")
	f.StringVar(&o.pre, "pre", "", "pre-tokenizer, which decides the markers and the chat template too (default that of the preset):\n"+strings.Join(synthetic.Pretokenizers(), ", "))
	f.StringVar(&o.experts, "experts", "", "type of all routed experts, or iq2 for IQ2_XXS gate and up with Q2_K down")
	f.StringVar(&o.gate, "gate", "", "type of the routed experts' gate and up matrices")
	f.StringVar(&o.up, "up", "", "type of the routed experts' up matrices, where it differs from gate's")
	f.StringVar(&o.down, "down", "", "type of the routed experts' down matrices")
	f.StringVar(&o.dense, "dense", "", "type of the attention and the shared expert (default q8_0)")
	f.StringVar(&o.aux, "aux", "", "type of router, compressors, indexer and hyper-connections (default f16)")
	f.StringVar(&o.embd, "embd", "", "type of the token embedding (default f16)")
	f.StringVar(&o.output, "output", "", "type of the output matrix (default q8_0)")
	f.StringVar(&o.layerExperts, "layer-experts", "", "types of the routed experts of single layers, e.g. 3=q6_k,4=mxfp4")
	f.StringVar(&o.layerGate, "layer-gate", "", "the same for their gate matrices alone")
	f.StringVar(&o.layerUp, "layer-up", "", "the same for their up matrices alone")
	f.StringVar(&o.layerDown, "layer-down", "", "the same for their down matrices alone")
	f.StringVar(&o.scale, "scale", "", "add the tensor of its scale to each matrix of nvfp4: "+strings.Join(synthetic.Scales(), " or "))
	f.IntVar(&o.split, "split", 1, "write this many files, FILE-00001-of-0000N.gguf and on")
	f.BoolVar(&o.holes, "holes", false, "leave the data of large tensors out (a sparse file); presets flash and pro do\nunless --holes=false")
	f.BoolVar(&o.vocabOnly, "vocab-only", false, "write metadata and vocabulary, no tensors")
	f.BoolVar(&o.alias, "alias", false, "use the other tensor names found in the wild, and gate and up merged in one tensor")
	f.StringVar(&o.mtp, "mtp", "", "add a block for multi-token prediction: "+strings.Join(synthetic.Blocks(), ", ")+"\n(alone: a file of the block without the model of the same flags)")
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if o.out == "" {
			return fmt.Errorf("--out is required: the file to write")
		}
		return nil
	}
	return c
}

// tinyPresets are the smallest presets by architecture.
var tinyPresets = map[string]string{"deepseek4": "tiny", "deepseek41": "v41-tiny", "deepseek2": "ds2-tiny", "deepseek32": "v32-tiny", "glm-dsa": "glm5-tiny"}

// config turns the flags into the model's shape.
func (o *options) config() (synthetic.Config, error) {
	if tiny := tinyPresets[o.arch]; tiny != "" && !o.presetGiven {
		o.preset = tiny
	}
	c, err := synthetic.Preset(o.preset)
	if err != nil {
		return c, err
	}
	if o.arch != "" && o.arch != c.Arch {
		if err := c.SetArch(o.arch); err != nil {
			return c, fmt.Errorf("--arch: %w", err)
		}
	}
	if o.split < 1 {
		return c, fmt.Errorf("--split %d: want at least 1", o.split)
	}
	c.Seed, c.Parts, c.VocabOnly, c.Alias = o.seed, o.split, o.vocabOnly, o.alias
	c.Block, c.Scale = o.mtp, o.scale
	if o.pre != "" {
		c.Pre = o.pre
	}
	if o.holesGiven {
		c.Holes = o.holes
	}
	if o.ratios != "" {
		if err := c.SetRatios(o.ratios); err != nil {
			return c, err
		}
		if c.Ratios != nil {
			c.Layers = len(c.Ratios)
		}
	}
	for _, kv := range o.set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return c, fmt.Errorf("--set %q: want KEY=VALUE", kv)
		}
		if err := c.Set(key, value); err != nil {
			return c, err
		}
	}
	return c, o.types(&c)
}

// types sets the element types; more specific flags override the others.
func (o *options) types(c *synthetic.Config) error {
	if o.experts != "" {
		if err := c.SetExperts(o.experts); err != nil {
			return fmt.Errorf("--experts: %w", err)
		}
	}
	for _, t := range []struct {
		flag, name string
		to         []*gguf.Type
	}{
		{"gate", o.gate, []*gguf.Type{&c.Types.Gate, &c.Types.Up}}, {"up", o.up, []*gguf.Type{&c.Types.Up}},
		{"down", o.down, []*gguf.Type{&c.Types.Down}}, {"dense", o.dense, []*gguf.Type{&c.Types.Dense}},
		{"aux", o.aux, []*gguf.Type{&c.Types.Aux}}, {"embd", o.embd, []*gguf.Type{&c.Types.Embd}},
		{"output", o.output, []*gguf.Type{&c.Types.Output}},
	} {
		if t.name == "" {
			continue
		}
		v, err := synthetic.ParseType(t.name)
		if err != nil {
			return fmt.Errorf("--%s: %w", t.flag, err)
		}
		for _, to := range t.to {
			*to = v
		}
	}
	c.LayerGate, c.LayerUp, c.LayerDown = map[int]gguf.Type{}, map[int]gguf.Type{}, map[int]gguf.Type{}
	for _, l := range []struct {
		flag, list string
		to         []map[int]gguf.Type
	}{
		{"layer-experts", o.layerExperts, []map[int]gguf.Type{c.LayerGate, c.LayerUp, c.LayerDown}},
		{"layer-gate", o.layerGate, []map[int]gguf.Type{c.LayerGate}},
		{"layer-up", o.layerUp, []map[int]gguf.Type{c.LayerUp}},
		{"layer-down", o.layerDown, []map[int]gguf.Type{c.LayerDown}},
	} {
		if l.list == "" {
			continue
		}
		types, err := synthetic.ParseLayerTypes(l.list)
		if err != nil {
			return fmt.Errorf("--%s: %w", l.flag, err)
		}
		for i, t := range types {
			for _, to := range l.to {
				to[i] = t
			}
		}
	}
	return nil
}

// run writes the model and reports what it wrote as one line of JSON.
func run(out io.Writer, o *options, now func() time.Time) error {
	start := now()
	c, err := o.config()
	if err != nil {
		return err
	}
	written, err := c.WriteFile(o.out)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(map[string]any{
		"name": c.Name, "files": written.Files, "tensor_bytes": written.TensorBytes, "holes": c.Holes,
		"seconds": now().Sub(start).Seconds(),
	})
}
