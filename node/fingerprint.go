package node

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

// Fingerprint is the API's system_fingerprint of a loaded model: "fp_" and
// 16 hexadecimal digits. It covers what decides the bits of the logits: the
// model file, the build (version and hash of the program), the backend with its kernels,
// the functions of the C library, and the order in which expert outputs are added. So it survives a restart of the same set-up, and
// two servers with equal fingerprints give equal text for an equal request with
// an equal seed.
func (n *Node) Fingerprint() string {
	var group replica.Settings
	if n.Leader != nil {
		group = n.Leader.Planner.Last().Settings
	}
	return n.fingerprint(group)
}

// StateFingerprint names all that decides the bits of a snapshot, but not the group: with
// --reduce exact it does not, and with sum a group of any size may continue with what
// another has computed.
func (n *Node) StateFingerprint() string { return n.fingerprint(replica.Settings{}) }

func (n *Node) fingerprint(group replica.Settings) string {
	kernels := strings.TrimSpace(n.Kernels + " " + n.math)
	return fingerprintOf(gguf.Fingerprint(n.File), gguf.WeightSample(n.File), program.ID(), kernels, n.o.Reduce, group)
}

// fingerprintOf hashes the parts of a fingerprint. group are the settings of the
// group, empty without one.
func fingerprintOf(model, weights, build, kernels string, reduce parallel.Reduce, group replica.Settings) string {
	parts := struct {
		Model, Weights, Build, Kernels, Reduce string
		Placement                              parallel.Placement
	}{Model: model, Weights: weights, Build: build, Kernels: kernels, Reduce: reduce.String()}
	if reduce != parallel.Exact && len(group.Placement) > 1 {
		// With exact the bits are those of one host, whatever the group is.
		parts.Placement = group.Placement.DivideRows(0) // these change no bit
	}
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings and integers cannot fail
	}
	sum := sha256.Sum256(text)
	return "fp_" + hex.EncodeToString(sum[:8])
}
