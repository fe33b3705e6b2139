package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"ringmaster/engine"
	"ringmaster/gguf"
	"ringmaster/internal/verify"
)

// examined is what a leader that serves lets others examine: see verify.
type examined struct {
	engine *engine.Engine
	loaded *loaded
}

// examine answers a request of ringmaster verify: the cluster's Config.Examine.
func (o *modelOptions) examine(ctx context.Context, request []byte) []byte {
	a := o.examineTask(ctx, request)
	text, err := json.Marshal(a)
	if err != nil { // plain fields only
		panic(fmt.Sprintf("examine: %v", err))
	}
	return text
}

func (o *modelOptions) examineTask(ctx context.Context, request []byte) (a verify.Reply) {
	var r verify.Request
	if err := json.Unmarshal(request, &r); err != nil {
		return verify.Reply{Error: fmt.Sprintf("the request: %v; is verify of this build?", err)}
	}
	x := o.served.Load()
	if x == nil {
		return verify.Reply{Error: "the model is loading; try again when /readyz is 200"}
	}
	g := x.loaded.group
	if r.Task == nil {
		return describeGroup(x.loaded, o)
	}
	err := x.engine.Between(ctx, func() {
		began := time.Now()
		var err error
		if a.Found, a.Epoch, err = g.steps.Examine(*r.Task); err != nil {
			a.Error = err.Error()
		}
		a.Took = time.Since(began)
	})
	if err != nil {
		return verify.Reply{Error: err.Error()}
	}
	return a
}

// describeGroup is the answer to a request without a task.
func describeGroup(l *loaded, o *modelOptions) verify.Reply {
	g := l.group
	e, err := g.leader.Epoch()
	if err != nil {
		return verify.Reply{Error: err.Error()}
	}
	extent, p, err := g.steps.Extent()
	if err != nil {
		return verify.Reply{Error: err.Error()}
	}
	s, members := g.leader.Status(), e.Members
	out := &verify.Group{Ranks: members, Extent: extent, Model: l.model.Info().Name, Fingerprint: gguf.Fingerprint(l.file),
		Reduce: o.reduce.String(), Transport: s.Transport.Kind, Topology: s.Transport.Topology}
	if len(p) != len(members) {
		return verify.Reply{Error: "the group re-forms"}
	}
	for i, r := range members {
		out.Experts = append(out.Experts, [2]int{p[i].Experts.Start, p[i].Experts.End})
		out.Kernels = append(out.Kernels, s.Ranks[r].Hello.Kernels)
	}
	return verify.Reply{Epoch: e.Number, Group: out}
}
