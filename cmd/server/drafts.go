package main

import (
	"strings"

	"ringmaster/internal/flags"
	"ringmaster/internal/server"
	"ringmaster/node"
)

const draftsForm = "off, text, auto or mtp, also with the file of a block such as mtp:FILE"

// parseDrafts reads where drafts come from. A block in a file of its own is one that must be
// there.
func parseDrafts(s string) (server.Drafts, error) {
	what, path, given := strings.Cut(s, ":")
	var d server.Drafts
	switch what {
	case "off", "text":
		d.Texts = what == "text"
	case "auto":
		d = server.Drafts{Texts: true, Block: node.Block{Auto: !given, Use: given, Path: path}}
	case "mtp":
		d.Block = node.Block{Use: true, Path: path}
	default:
		return d, flags.Formed(false)
	}
	return d, flags.Formed(!given || path != "" && d.Block.Use)
}
