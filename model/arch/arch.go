// Package arch is the registry of architectures: how to plan and open a model by the
// architecture that its file names. Another architecture is one more row.
//
//	f, err := arch.OpenFile("model.gguf")
//	plan, err := arch.Plan(f, options, sequences) // memory, from the header alone
//	m, err := arch.Open(f, backend, options)
//	defer m.Close()
package arch

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/model/deepseek2"
	"ringmaster/model/deepseek4"
	"ringmaster/model/deepseek41"
)

// architecture is one row of the registry.
type architecture struct {
	name string // general.architecture of its files
	plan func(f *gguf.File, o decoder.OpenOptions, sequences int) (decoder.Plan, error)
	open func(f *gguf.File, b kernels.Backend, o decoder.OpenOptions) (decoder.Decoder, error)
}

var registry = []architecture{
	{"deepseek4", deepseek4.NewPlan, open(deepseek4.Open)},
	{"deepseek41", deepseek41.NewPlan, open(deepseek41.Open)},
	{"deepseek2", deepseek2.NewPlan, open(deepseek2.Open)},
	{"deepseek32", deepseek2.NewPlan, open(deepseek2.Open)},
	{"glm-dsa", deepseek2.NewPlan, open(deepseek2.Open)},
}

// open makes a decoder.Decoder of what an architecture opens. On an error it returns nil,
// because a nil pointer in an interface would not be nil.
func open[M decoder.Decoder](f func(*gguf.File, kernels.Backend, decoder.OpenOptions) (M, error)) func(*gguf.File, kernels.Backend, decoder.OpenOptions) (decoder.Decoder, error) {
	return func(file *gguf.File, b kernels.Backend, o decoder.OpenOptions) (decoder.Decoder, error) {
		m, err := f(file, b, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	}
}

// of finds the architecture of a file.
func of(f *gguf.File) (architecture, error) {
	for _, a := range registry {
		if a.name == f.Architecture() {
			return a, nil
		}
	}
	return architecture{}, &model.FileError{Err: fmt.Errorf("%s %w", f.Path(), foreign(f.Architecture(), kindOf(f)))}
}

// Plan computes the memory plan of a file opened with the given options. sequences is the
// largest number of sequences held at once. The error names what is missing or wrong in
// the file's header.
func Plan(f *gguf.File, o decoder.OpenOptions, sequences int) (decoder.Plan, error) {
	a, err := of(f)
	if err != nil {
		return decoder.Plan{}, err
	}
	return a.plan(f, o, sequences)
}

// Open makes the model of a file on a backend. Until Close, the file must stay open
// and nothing else may use the backend. The error names every key and tensor that is
// missing or wrong.
func Open(f *gguf.File, b kernels.Backend, o decoder.OpenOptions) (decoder.Decoder, error) {
	a, err := of(f)
	if err != nil {
		return nil, err
	}
	return a.open(f, b, o)
}
