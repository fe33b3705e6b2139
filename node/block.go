package node

import (
	"errors"
	"fmt"
	"log/slog"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/arch"
)

// Block is which block for multi-token prediction a node drafts with.
type Block struct {
	Use  bool   // the one of Path; without it Open fails
	Auto bool   // the one of the model's file, if it has one that can be used
	Path string // empty: the model's file
}

// HasBlock reports whether the node drafts with a block for multi-token prediction. It
// holds from Open on.
func (n *Node) HasBlock() bool { return n.hasBlock }

// blockOf returns the file of the block where it is planned with the model, else nil.
func (n *Node) blockOf(planned bool) *gguf.File {
	if !planned {
		return nil
	}
	return n.blockFile
}

// openBlock opens the file of the block, if one is to be used. A rank that does not return
// logits needs none.
func (n *Node) openBlock() error {
	o := n.o.Block
	switch {
	case !o.Use && !o.Auto, n.o.Group != nil && n.o.Group.Rank != 0:
		return nil
	case !kernels.RowsAgree(n.Backend):
		if o.Use {
			return fmt.Errorf("the block for multi-token prediction cannot be used with the %s backend, on which logits depend on how many tokens a step has", n.Backend.Name())
		}
		return nil
	case !o.Use && !arch.HasBlock(n.File):
		return nil
	}
	file := n.File
	if o.Path != "" {
		var err error
		if file, err = gguf.Open(o.Path); err != nil {
			return err
		}
	}
	err := arch.CheckBlock(n.File, file)
	switch {
	case err == nil:
		n.blockFile = file
		return nil
	case !o.Use:
		slog.Warn("the model's block for multi-token prediction is not used", "error", err)
		return nil
	}
	if file != n.File {
		err = errors.Join(err, file.Close())
	}
	return arch.Explain(err)
}
