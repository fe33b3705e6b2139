// Package tokenizer turns text into the token ids of a model file and back.
package tokenizer

// Tokenizer is the byte-level BPE of one model file. It is safe for
// concurrent use.
type Tokenizer struct {
	tokens []string
}
