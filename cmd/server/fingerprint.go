package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"ringmaster/gguf"
	"ringmaster/internal/program"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// systemFingerprint is the API's system_fingerprint of a loaded model: "fp_" and
// 16 hexadecimal digits. It covers what decides the bits of the logits: the
// model file, the build (version and hash of the program), the backend with its kernels,
// the functions of the C library, and the order in which expert outputs are added. So it survives a restart of the same set-up, and
// two servers with equal fingerprints give equal text for an equal request with
// an equal seed.
func (o *modelOptions) systemFingerprint(l *loaded) string {
	var group replica.Settings
	if l.group != nil {
		group = l.group.planner.Last().Settings
	}
	return fingerprintOf(gguf.Fingerprint(l.file), gguf.WeightSample(l.file), program.ID(), l.bits(), o.reduce, group)
}

// fingerprintOf hashes the parts of systemFingerprint. group are the settings of the
// group, empty without one.
func fingerprintOf(model, weights, build, kernels string, reduce parallel.Reduce, group replica.Settings) string {
	parts := struct {
		Model, Weights, Build, Kernels, Reduce string
		Placement                              parallel.Placement
	}{Model: model, Weights: weights, Build: build, Kernels: kernels, Reduce: reduce.String()}
	if reduce != parallel.Exact && len(group.Placement) > 1 {
		// With exact the bits are those of one host, whatever the group is.
		parts.Placement = group.Placement.DivideRows(0) // which change no bit
	}
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings and integers cannot fail
	}
	sum := sha256.Sum256(text)
	return "fp_" + hex.EncodeToString(sum[:8])
}

// bits names what computes, as far as it decides bits.
func (l *loaded) bits() string { return strings.TrimSpace(l.kernels + " " + l.math) }
