package gguf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// family is a group of types that this program does not compute with. It knows who
// defines them and what a person with such a file can do.
type family int

const (
	ofGGML        family = iota // of GGML, for weights
	ofOldGGML                   // of GGML once, refused by llama.cpp since
	ofNumbers                   // of GGML, for numbers that are no weights
	ofActivations               // of activations while a program runs, never of a file
	ofIK                        // of ik_llama.cpp, for weights
	ofIKRepacked                // of ik_llama.cpp, with the rows of a matrix interleaved
)

var families = [...]struct{ maker, cure string }{
	ofGGML:        {"GGML", "take the download of the same model in " + commonTypes},
	ofOldGGML:     {"GGML until 2024", "llama.cpp no longer reads them: take the download in Q4_0 or in " + commonTypes},
	ofNumbers:     {"GGML, not for weights", "a model has no such weights: compare the file with its source"},
	ofActivations: {"activations", "no file has weights in them: compare the file with its source"},
	ofIK:          {"ik_llama.cpp", onlyIK},
	ofIKRepacked:  {"ik_llama.cpp, rows interleaved", onlyIK},
}

const (
	commonTypes = "Q4_K_M, UD-Q4_K_XL, IQ4_XS, Q8_0, MXFP4 or another type of llama.cpp"
	onlyIK      = "only ik_llama.cpp reads them: take the download of the same model in " + commonTypes
)

// foreign are the types that this program knows by name only. The numbers are those of
// ggml.h of llama.cpp and, from 97 on and for 36, of ik_llama.cpp. Two programs use 36, and
// two use 42.
var foreign = map[Type]struct {
	name   string
	family family
}{
	4: {"Q4_2", ofOldGGML}, 5: {"Q4_3", ofOldGGML}, 9: {"Q8_1", ofActivations}, 15: {"Q8_K", ofActivations},
	25: {"I16", ofNumbers}, 27: {"I64", ofNumbers}, 28: {"F64", ofNumbers},
	31: {"Q4_0_4_4", ofOldGGML}, 32: {"Q4_0_4_8", ofOldGGML}, 33: {"Q4_0_8_8", ofOldGGML}, 34: {"TQ1_0", ofGGML},
	35: {"TQ2_0", ofGGML}, 36: {"I2_S or IQ4_NL_4_4", ofIK}, 37: {"IQ4_NL_4_8", ofOldGGML},
	38: {"IQ4_NL_8_8", ofOldGGML}, 41: {"Q1_0", ofGGML}, 42: {"F8_E4M3 or Q2_0", ofGGML},
	97: {"Q8_0_X4", ofActivations}, 98: {"Q8_1_X4", ofActivations}, 99: {"Q8_2_X4", ofActivations},
	133: {"Q6_0", ofIK}, 134: {"IQ1_BN", ofIK}, 135: {"IQ2_BN", ofIK}, 136: {"Q8_K64", ofActivations},
	137: {"IQ2_K", ofIK}, 138: {"IQ3_K", ofIK}, 139: {"IQ4_K", ofIK}, 140: {"IQ5_K", ofIK}, 141: {"IQ6_K", ofIK},
	144: {"IQ4_KS", ofIK}, 145: {"IQ2_KS", ofIK}, 146: {"IQ4_KSS", ofIK}, 147: {"Q8_K16", ofActivations},
	148: {"Q8_K32", ofActivations}, 149: {"Q8_KR8", ofActivations}, 150: {"Q8_K128", ofActivations},
	151: {"Q8_KV", ofIK}, 152: {"IQ5_KS", ofIK}, 153: {"IQ2_KT", ofIK}, 154: {"IQ3_KT", ofIK},
	155: {"IQ4_KT", ofIK}, 156: {"IQ3_KS", ofIK}, 157: {"IQ2_KL", ofIK}, 158: {"IQ1_KT", ofIK},
	202: {"Q4_0_R8", ofIKRepacked}, 206: {"Q5_0_R4", ofIKRepacked}, 208: {"Q8_0_R8", ofIKRepacked},
	210: {"Q2_K_R4", ofIKRepacked}, 211: {"Q3_K_R4", ofIKRepacked}, 212: {"Q4_K_R4", ofIKRepacked},
	213: {"Q5_K_R4", ofIKRepacked}, 214: {"Q6_K_R4", ofIKRepacked}, 216: {"IQ2_XXS_R4", ofIKRepacked},
	217: {"IQ2_XS_R4", ofIKRepacked}, 218: {"IQ3_XXS_R4", ofIKRepacked}, 219: {"IQ1_S_R4", ofIKRepacked},
	220: {"IQ4_NL_R4", ofIKRepacked}, 221: {"IQ3_S_R4", ofIKRepacked}, 222: {"IQ2_S_R4", ofIKRepacked},
	223: {"IQ4_XS_R8", ofIKRepacked}, 229: {"IQ1_M_R4", ofIKRepacked}, 230: {"BF16_R16", ofIKRepacked},
	233: {"Q6_0_R4", ofIKRepacked}, 335: {"IQ2_BN_R4", ofIKRepacked}, 337: {"IQ2_K_R4", ofIKRepacked},
	338: {"IQ3_K_R4", ofIKRepacked}, 339: {"IQ4_K_R4", ofIKRepacked}, 340: {"IQ5_K_R4", ofIKRepacked},
	344: {"IQ4_KS_R4", ofIKRepacked}, 352: {"IQ5_KS_R4", ofIKRepacked}, 353: {"MXFP4_R8", ofIKRepacked},
	397: {"Q8_K_R16", ofIKRepacked}, 398: {"Q8_KV_R8", ofIKRepacked}, 399: {"Q8_K_R8", ofIKRepacked},
}

// ForeignTypes is the error of a file with tensors of types that this program does not
// compute with. It names every such type of all parts.
type ForeignTypes struct {
	Architecture string // of the file, "" if it has none
	Types        map[Type]Foreign
}

// Foreign is what a file has of one type.
type Foreign struct {
	Tensors int
	First   string // name of the first tensor
}

// Error names the types in the order of their numbers, who defines them, and which download
// to take instead.
func (e *ForeignTypes) Error() string {
	var kinds, cures []string
	for _, t := range slices.Sorted(maps.Keys(e.Types)) {
		use := e.Types[t]
		maker, cure := "unknown", "this type is newer than this program, or the file is damaged: take the download of the same model in "+commonTypes
		if f, ok := foreign[t]; ok {
			maker, cure = families[f.family].maker, families[f.family].cure
		}
		count := fmt.Sprintf("%d tensors, the first %q", use.Tensors, use.First)
		if use.Tensors == 1 {
			count = fmt.Sprintf("1 tensor, %q", use.First)
		}
		kinds = append(kinds, fmt.Sprintf("%s (%s; %s)", t, maker, count))
		if !slices.Contains(cures, cure) {
			cures = append(cures, cure)
		}
		if len(kinds) == mostForeign && len(e.Types) > mostForeign {
			kinds = append(kinds, fmt.Sprintf("%d more", len(e.Types)-mostForeign))
			break
		}
	}
	return fmt.Sprintf("types that this program cannot compute with: %s. What to do: %s", strings.Join(kinds, ", "), strings.Join(cures, "; "))
}

// mostForeign bounds the types that an error names, because a hostile file may have one
// per tensor.
const mostForeign = 16

// add counts a tensor of a foreign type.
func (e *ForeignTypes) add(t Type, name []byte) {
	if e.Types == nil {
		e.Types = map[Type]Foreign{}
	}
	use := e.Types[t]
	if use.Tensors == 0 {
		use.First = string(name[:min(len(name), 256)])
	}
	use.Tensors++
	e.Types[t] = use
}

// merge adds what another part of the file has.
func (e *ForeignTypes) merge(part ForeignTypes) {
	if e.Architecture == "" {
		e.Architecture = part.Architecture
	}
	for t, use := range part.Types {
		for range use.Tensors {
			e.add(t, []byte(use.First))
		}
	}
}
