package forecast

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/parallel"
)

// Alternative is one value of --share on the hosts of a plan.
type Alternative struct {
	Share   string `json:"share"`
	Chooses string `json:"chooses,omitempty"` // of auto: what it divides
	Fits    bool   `json:"fits"`
	Why     string `json:"why,omitempty"` // why it does not fit
	Context int    `json:"context,omitempty"`
	Caches  int64  `json:"kv_caches,omitempty"` // bytes of all sequences on each rank, at most
	Needs   int64  `json:"needs,omitempty"`     // bytes of the rank that needs most
	Left    int64  `json:"left,omitempty"`      // bytes of the rank that has least left
	// In tokens per second of one sequence; 0 if a rate of a host is unknown.
	Prefill float64 `json:"prefill,omitempty"` // of 512 tokens
	Decode  float64 `json:"decode,omitempty"`
}

// request is the seconds of the request by which --share auto compares; 0 if unknown.
func (a Alternative) request() float64 {
	if a.Prefill == 0 || a.Decode == 0 {
		return 0
	}
	return groupplan.RequestPrompt/a.Prefill + groupplan.RequestAnswer/a.Decode
}

// compare plans the hosts with each value of --share and recommends one. p is the plan for
// the options' own. One host has nothing to divide, and gives no alternatives.
func (o *Forecaster) compare(p *Plan) (all []Alternative, recommended string, err error) {
	if len(o.hosts) < 2 {
		return nil, "", nil
	}
	plans, slower := map[string]*Plan{what(o.Share): p}, ""
	for _, share := range []groupplan.Share{{Of: parallel.ShareExperts}, {Of: parallel.ShareAll}, {Auto: true}} {
		share.Shares = o.Share.Shares
		plan := plans[what(share)]
		if plan == nil {
			one := *o
			one.Share = share
			plan, err = one.plan(o.hosts)
			o.tracer = one.tracer
			if err != nil {
				return nil, "", err
			}
			if plan.Fits && predictable(o.hosts) {
				if plan.Predicted, err = one.predict(plan, o.hosts); err != nil {
					return nil, "", err
				}
			}
		}
		all = append(all, alternative(what(share), plan))
		_, slower, _ = strings.Cut(plan.Expected, "; slower than ") // of auto, the last
	}
	recommended = recommend(all)
	if slower != "" {
		recommended += "; one host is faster if it holds the model: the group is slower than " + slower
	}
	return all, recommended, nil
}

// what is the name of what a share divides.
func what(s groupplan.Share) string {
	if s.Auto {
		return groupplan.AutoShare
	}
	return s.Of.String()
}

// alternative summarises a plan.
func alternative(share string, p *Plan) Alternative {
	a := Alternative{Share: share, Fits: p.Fits, Why: p.Why, Context: p.Context, Caches: p.Caches}
	if share == groupplan.AutoShare && p.Fits {
		a.Chooses = p.Share
	}
	for i, r := range p.Ranks {
		a.Needs = max(a.Needs, r.Resident)
		if i == 0 || r.Free < a.Left {
			a.Left = r.Free
		}
	}
	for _, x := range p.Predicted {
		switch {
		case x.What == "decode":
			a.Decode = x.Rate
		case x.N == groupplan.RequestPrompt:
			a.Prefill = x.Rate
		}
	}
	return a
}

// recommend says which alternative to take, and why.
func recommend(all []Alternative) string {
	experts, divided, auto := all[0], all[1], all[2]
	switch {
	case !auto.Fits:
		return "none of them: " + auto.Why
	case !experts.Fits || !divided.Fits:
		return fmt.Sprintf("--share auto, which takes %s, because the other does not fit", auto.Chooses)
	case experts.request() == 0 || divided.request() == 0:
		return "--share auto, which measures the group when it forms and takes what is faster; nothing is predicted without the rate of each memory and the speed of each host (--host 64GiB,40GB/s,1TFLOP/s)"
	}
	other := experts
	if auto.Chooses == experts.Share {
		other = divided
	}
	return fmt.Sprintf("--share auto, which takes %s: a prompt of %d tokens and %d of an answer in %.2f times the time of %s",
		auto.Chooses, groupplan.RequestPrompt, groupplan.RequestAnswer, auto.request()/other.request(), other.Share)
}

// writeAlternatives prints the alternatives side by side, with the recommendation.
func writeAlternatives(b *strings.Builder, all []Alternative, recommended string) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "--share\tcontext\tKV caches\tneeds at most\tleft at least\tprefill of %d\tdecode\t\n", groupplan.RequestPrompt)
	rate := func(r float64) string {
		if r == 0 {
			return "unknown"
		}
		return fmt.Sprintf("%.1f t/s", r)
	}
	for _, a := range all {
		name := a.Share
		if a.Chooses != "" {
			name += " (" + a.Chooses + ")"
		}
		if !a.Fits {
			fmt.Fprintf(t, "%s\tdoes not fit\t\t\t\t\t\t\n", name)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", name, a.Context, units.Bytes(a.Caches), units.Bytes(a.Needs), units.Bytes(a.Left), rate(a.Prefill), rate(a.Decode))
	}
	_ = t.Flush() // to memory
	fmt.Fprintf(b, "recommended: %s\n", recommended)
}
