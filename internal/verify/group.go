package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/internal/safetext"
	"ringmaster/model"
	"ringmaster/replica"
)

// Request is a request to the leader of a group; without a Task, for its Group.
type Request struct {
	Task *replica.Task `json:"task,omitempty"`
}

// Reply is the leader's answer.
type Reply struct {
	Error string            `json:"error,omitempty"` // why the rest is missing
	Epoch uint32            `json:"epoch"`
	Group *Group            `json:"group,omitempty"`
	Found []replica.Finding `json:"found,omitempty"` // [members]
	Took  time.Duration     `json:"took,omitempty"`  // how long steps waited for it
}

// Group describes a running group.
type Group struct {
	Ranks       []int        `json:"ranks"`           // members, by their numbers in the world
	Hosts       []string     `json:"hosts,omitempty"` // [members] names of their hosts
	Experts     [][2]int     `json:"experts"`         // [members] first expert and end of those that each owns
	Kernels     []string     `json:"kernels"`         // [members]
	Extent      model.Extent `json:"extent"`
	Model       string       `json:"model"`
	Fingerprint string       `json:"fingerprint"` // of the model's file
	Reduce      string       `json:"reduce"`
	Transport   string       `json:"transport"`
	Topology    string       `json:"topology"`
}

// host returns the name of the host of a rank of the world, "" if it is not known.
func (g *Group) host(rank int) string {
	if i := slices.Index(g.Ranks, rank); i >= 0 && i < len(g.Hosts) {
		return g.Hosts[i]
	}
	return ""
}

// Asker sends requests to the leader.
type Asker interface {
	Ask(ctx context.Context, request []byte) ([]byte, error)
}

// Examination examines a group through its leader.
type Examination struct {
	Asker Asker
	// Limit is how long an answer may take. Pause is how long requests of the group's
	// clients should wait for a task at most. After a task, they have the group to
	// themselves for Rest times the pause.
	Limit, Pause time.Duration
	Rest         float64
	Progress     func(text string) // nil for none

	group   Group
	epoch   uint32
	longest time.Duration // pause
	paused  time.Duration // in total
	asked   int
}

// Look asks what there is to examine.
func (x *Examination) Look(ctx context.Context) (Group, error) {
	a, err := x.ask(ctx, Request{})
	if err == nil && (a.Group == nil || len(a.Group.Ranks) == 0 || len(a.Group.Ranks) != len(a.Group.Experts) || len(a.Group.Ranks) != len(a.Group.Kernels)) {
		err = fmt.Errorf("the leader describes no group")
	}
	if err != nil {
		return Group{}, err
	}
	x.group, x.epoch = *a.Group, a.Epoch
	return x.group, nil
}

// do has the group do a task, and rests.
func (x *Examination) do(ctx context.Context, t replica.Task) (Reply, error) {
	a, err := x.ask(ctx, Request{Task: &t})
	switch {
	case err != nil:
		return a, err
	case a.Epoch != x.epoch:
		return a, fmt.Errorf("the group re-formed during the check (epoch %d, was %d); run verify again", a.Epoch, x.epoch)
	case len(a.Found) != len(x.group.Ranks):
		return a, fmt.Errorf("%d of %d ranks have answered", len(a.Found), len(x.group.Ranks))
	}
	for _, f := range a.Found {
		if f.Error != "" {
			return a, fmt.Errorf("%s cannot examine: %s", distributed.RankName(f.Rank, x.group.host(f.Rank)), f.Error)
		}
	}
	x.longest, x.paused = max(x.longest, a.Took), x.paused+a.Took
	x.asked++
	rest := time.NewTimer(time.Duration(x.Rest * float64(a.Took)))
	defer rest.Stop()
	select {
	case <-rest.C:
		return a, nil
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
}

func (x *Examination) ask(ctx context.Context, r Request) (a Reply, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, x.Limit, fmt.Errorf("the leader has not answered within %v", x.Limit))
	defer cancel()
	text, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	if text, err = x.Asker.Ask(ctx, text); err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("the leader's answer: %w; is it of this build?", safetext.Error(err, safetext.Evidence))
	}
	safetext.Strings(&a, safetext.Evidence)
	if a.Error != "" {
		return a, fmt.Errorf("the group: %s", a.Error)
	}
	return a, nil
}

// adapt returns how much to ask for at once, from 1 to most, after n took took.
func (x *Examination) adapt(n, most int, took time.Duration) int {
	switch {
	case took > x.Pause:
		n = int(float64(n) * max(0.1, float64(x.Pause)/float64(took)))
	case took < x.Pause/2:
		n = int(float64(n) * min(4, float64(x.Pause)/float64(max(took, 1))))
	}
	return min(max(n, 1), most)
}

func (x *Examination) progress(format string, a ...any) {
	if x.Progress != nil {
		x.Progress(fmt.Sprintf(format, a...))
	}
}
