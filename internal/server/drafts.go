package server

import (
	"log/slog"

	"ringmaster/engine"
	"ringmaster/kernels"
	"ringmaster/node"
)

// Drafts is where drafts come from.
type Drafts struct {
	Texts bool       // what prompts and answers have said
	Block node.Block // the model's block for multi-token prediction, which the node opens
}

// apply gives the options of an engine on a node the sources of its drafts.
func (d Drafts) apply(o *engine.Options, n *node.Node) {
	if o.ModelDrafts = n.HasBlock(); o.ModelDrafts {
		slog.Info("drafts come from the model's block for multi-token prediction")
	}
	switch {
	case !d.Texts:
	case kernels.RowsAgree(n.Backend):
		o.Drafter = engine.TextDrafter
	default:
		slog.Info("no speculative decoding: on this backend the logits of a token depend on the number of rows in its step", "backend", n.Backend.Name())
	}
}
