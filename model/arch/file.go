package arch

import (
	"errors"
	"fmt"
	"strings"

	"ringmaster/gguf"
	"ringmaster/model"
	"ringmaster/model/decoder"
)

// runs lists for people the models that the rows of the registry run.
const runs = "DeepSeek V2 to V4.1, Kimi K2, GLM-4.7-Flash and GLM-5"

// OpenFile opens the file of a model and checks that this program runs its architecture and
// that it is a whole model. Its error wraps a model.FileError or is gguf's.
func OpenFile(path string) (*gguf.File, error) {
	f, err := gguf.Open(path)
	if types, ok := errors.AsType[*gguf.ForeignTypes](err); ok && !Runs(types.Architecture) {
		// Of an architecture that does not run, other types do not help either.
		return nil, &model.FileError{Err: fmt.Errorf("%s %w", path, foreign(types.Architecture, ""))}
	}
	if err != nil {
		return nil, err
	}
	if err := Check(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Check is nil if this program runs the architecture of a file and the file is a whole
// model. Otherwise its error is a model.FileError of one line that says what the file is.
func Check(f *gguf.File) error {
	if _, err := of(f); err != nil {
		return err
	}
	what := decoder.Companion(f)
	if kind, ok := kinds[kindOf(f)]; ok {
		what = kind
	} else if len(f.Tensors()) == 0 {
		what = "a vocabulary without a model: it has no tensors"
	}
	if what == "" {
		return nil
	}
	return &model.FileError{Err: fmt.Errorf("%s is %s; give --model the file of the model itself", f.Path(), what)}
}

// Runs reports whether this program runs an architecture, by its name in files.
func Runs(name string) bool {
	for _, a := range registry {
		if a.name == name {
			return true
		}
	}
	return false
}

// foreign is the error about a file of an architecture that the registry lacks. It begins
// with "is". kind is the file's general.type.
func foreign(name, kind string) error {
	if s, ok := kinds[kind]; ok && name == "" {
		return fmt.Errorf("is %s; Ringmaster runs %s", s, runs)
	}
	if name == "" {
		return fmt.Errorf("is not a model: it does not name an architecture (key general.architecture); Ringmaster runs %s", runs)
	}
	quoted := fmt.Sprintf("architecture %q", name[:min(len(name), mostName)])
	if s, ok := kinds[kind]; ok {
		return fmt.Errorf("is %s (%s); Ringmaster runs %s", s, quoted, runs)
	}
	for _, m := range makers {
		if strings.HasPrefix(name, m.prefix) {
			return fmt.Errorf("is %s (%s); Ringmaster runs %s", m.what, quoted, runs)
		}
	}
	return fmt.Errorf("is a model that Ringmaster does not run (%s); it runs %s", quoted, runs)
}

// mostName bounds how much of an architecture's name an error has, in bytes, because a
// file may have a name of any length.
const mostName = 64

// kindOf is what a file says that it is, general.type.
func kindOf(f *gguf.File) string {
	kind, _ := f.String("general.type")
	return kind
}

// kinds are the values of general.type of files that are not models.
var kinds = map[string]string{
	"adapter": "an adapter (LoRA), which changes a model",
	"imatrix": "an importance matrix for quantising models",
	"mmproj":  "an encoder of images or sound (mmproj), which accompanies a model",
	"vocab":   "a vocabulary without a model",
}

// makers are the architectures that people are likely to try, by the beginnings of their
// names. Longer beginnings come first, so that they match first.
var makers = []struct{ prefix, what string }{
	{"deepseek41-dspark", "a draft model (DSpark), with which other programs do speculative decoding for DeepSeek V4.1"},
	{"deepseek", "a DeepSeek model of an architecture that this version does not run"},
	{"dflash", "a draft model (DSpark), with which other programs do speculative decoding for DeepSeek V4"},
	{"clip", "an encoder of images or sound (mmproj), which accompanies a model"},
	{"controlvector", "a control vector, which changes a model"},
	{"llama", "a Llama model"},
	{"mllama", "a Llama model"},
	{"qwen", "a Qwen model"},
	{"gemma", "a Gemma model"},
	{"mistral", "a Mistral model"},
	{"glm", "a GLM model of an architecture that this version does not run"},
	{"chatglm", "a GLM model of an architecture that this version does not run"},
	{"gpt-oss", "a gpt-oss model"},
	{"gptoss", "a gpt-oss model"},
	{"minimax", "a MiniMax model"},
	{"kimi", "a Kimi model of an architecture that this version does not run"},
	{"phi", "a Phi model"},
	{"granite", "a Granite model"},
	{"nemotron", "a Nemotron model"},
	{"command", "a Command model"},
	{"cohere", "a Command model"},
	{"ernie", "an ERNIE model"},
	{"hunyuan", "a Hunyuan model"},
	{"bert", "an embedding model"},
	{"nomic-bert", "an embedding model"},
	{"whisper", "a Whisper model"},
}
