// Package tokenizer turns text into the token ids of a model file and back.
package tokenizer

