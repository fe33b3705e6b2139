package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"ringmaster/gguf"
	"ringmaster/internal/verify"
)

// Serves tells that the node serves, so that others may examine the group: between runs a
// function between two steps.
func (n *Node) Serves(between func(ctx context.Context, f func()) error) { n.between.Store(&between) }

// examine answers a request of ringmaster verify: the cluster's Config.Examine.
func (n *Node) examine(ctx context.Context, request []byte) []byte {
	a := n.examineTask(ctx, request)
	text, err := json.Marshal(a)
	if err != nil { // plain fields only
		panic(fmt.Sprintf("examine: %v", err))
	}
	return text
}

func (n *Node) examineTask(ctx context.Context, request []byte) (a verify.Reply) {
	var r verify.Request
	if err := json.Unmarshal(request, &r); err != nil {
		return verify.Reply{Error: fmt.Sprintf("the request: %v; is verify of this build?", err)}
	}
	between := n.between.Load()
	if between == nil {
		return verify.Reply{Error: "the model is loading; try again when /readyz is 200"}
	}
	if r.Task == nil {
		return n.describeGroup()
	}
	err := (*between)(ctx, func() {
		began := time.Now()
		var err error
		if a.Found, a.Epoch, err = n.Leader.Steps.Examine(*r.Task); err != nil {
			a.Error = err.Error()
		}
		a.Took = time.Since(began)
	})
	if err != nil {
		return verify.Reply{Error: err.Error()}
	}
	return a
}

// describeGroup answers a request without a task.
func (n *Node) describeGroup() verify.Reply {
	e, err := n.Leader.Epoch()
	if err != nil {
		return verify.Reply{Error: err.Error()}
	}
	extent, p, err := n.Leader.Steps.Extent()
	if err != nil {
		return verify.Reply{Error: err.Error()}
	}
	s, members := n.Leader.Status(), e.Members
	out := &verify.Group{Ranks: members, Extent: extent, Model: n.Model.Info().Name, Fingerprint: gguf.Fingerprint(n.File),
		Reduce: n.o.Reduce.String(), Transport: s.Transport.Kind, Topology: s.Transport.Topology}
	if len(p) != len(members) {
		return verify.Reply{Error: "the group re-forms"}
	}
	for i, r := range members {
		out.Experts = append(out.Experts, [2]int{p[i].Experts.Start, p[i].Experts.End})
		out.Hosts = append(out.Hosts, s.Ranks[r].Hello.Host)
		out.Kernels = append(out.Kernels, s.Ranks[r].Hello.Kernels)
	}
	return verify.Reply{Epoch: e.Number, Group: out}
}
