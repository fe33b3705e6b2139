package verify

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"ringmaster/internal/usage"
)

// GroupChecks are what is examined of a group from within.
type GroupChecks struct {
	Recompute bool          // each rank's part of the model is computed on another rank too
	Soak      time.Duration // how long data is sent over each link in each direction; 0: not at all
	Pause     time.Duration // how long requests to the group should wait at once
	Rest      float64       // by which factor of such a pause the group is left alone after it
	Expected  *Expected     // of each link; nil: nothing
	Seed      uint64        // of the data; 0: another each time
}

// Host is a copy of the group's model on the host that verifies.
type Host struct {
	Arbiter
	Path, Fingerprint, Kernels string
}

// Run examines a group and adds to the report. host may be nil; limit is the longest time
// for one question. An error means that the group could not be examined.
func (o GroupChecks) Run(ctx context.Context, conn Asker, host *Host, r *Report, limit time.Duration, progress io.Writer) error {
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	r.Seed = o.Seed
	x := &Examination{Asker: conn, Limit: limit, Pause: o.Pause, Rest: o.Rest, Progress: func(text string) { fmt.Fprintln(progress, text) }}
	g, err := x.Look(ctx)
	if err != nil {
		return err
	}
	r.Group, r.Reduce = &g, g.Reduce
	r.Model = cmp.Or(r.Model, g.Model)
	var arbiter Arbiter
	kernels := ""
	if host != nil {
		if host.Fingerprint != g.Fingerprint {
			return usage.Errorf("--model %s: not the group's model (fingerprint %s, the group has %s)", host.Path, host.Fingerprint, g.Fingerprint)
		}
		arbiter, kernels = host, host.Kernels
	}
	if o.Recompute {
		c, differences, err := x.Recompute(ctx, arbiter, kernels, o.Seed)
		if err != nil {
			return err
		}
		r.Differences = differences
		r.Add(c)
	}
	if o.Soak == 0 {
		return nil
	}
	r.Expected = o.Expected
	c, links, err := x.Soak(ctx, o.Soak, r.Expected, o.Seed)
	r.Links = links
	if err != nil && (ctx.Err() != nil || len(links) == 0) {
		return err
	}
	if err != nil { // a link that breaks is a failure of the check
		c.Verdict, c.Detail = Fail, fmt.Sprintf("%v", err)
	}
	r.Add(c)
	return nil
}
