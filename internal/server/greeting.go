package server

import (
	"fmt"
	"strings"

	"ringmaster/distributed"
	"ringmaster/internal/host"
	"ringmaster/internal/units"
	"ringmaster/node"
)

// greeting describes a server that is ready, in three lines for a person at a terminal: the
// model and where it runs, its memory, the address.
func greeting(n *node.Node, model, url string) string {
	where := "on this computer's GPU"
	if n.CPU != nil {
		where = fmt.Sprintf("on this computer (CPU, %s)", units.Count(n.Threads, "thread"))
	}
	if n.Leader != nil {
		s := n.Leader.Status()
		names := make([]string, len(s.Members))
		for i, rank := range s.Members {
			names[i] = distributed.RankName(rank, s.Ranks[rank].Hello.Host)
		}
		where = fmt.Sprintf("on %s over %s: %s", units.Count(len(names), "rank"), s.Transport.Kind, strings.Join(names, ", "))
	}
	_, own := host.ResidentMiB()
	return fmt.Sprintf("%s runs %s\n%s\nOpen %s\n", model, where, memorySentence(n.Weights, int64(own*(1<<20)), n.AtMost), url)
}

// memorySentence says what memory a server takes, in bytes: the weights that it maps, what
// it uses beside them now, and what that may become; now is 0 if the system does not say.
// The most alone would frighten, because a small model reaches it only with many long
// requests.
func memorySentence(weights, now, atMost int64) string {
	text := fmt.Sprintf("Memory: %s of weights", units.Bytes(weights))
	if now > 0 {
		text += fmt.Sprintf(", and %s beside them now", units.Bytes(now))
	}
	return text + fmt.Sprintf("; many long conversations and requests may take up to %s (--memory sets less)", units.Bytes(atMost))
}
