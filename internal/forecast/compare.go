package forecast

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/parallel"
)

// Alternative is one value of --share or --stages on the hosts of a plan.
type Alternative struct {
	Share   string `json:"share"`
	Stages  string `json:"stages,omitempty"`  // the value of --stages; Share is then divided inside
	Chooses string `json:"chooses,omitempty"` // of auto: what it divides
	Fits    bool   `json:"fits"`
	Why     string `json:"why,omitempty"` // why it does not fit
	Context int    `json:"context,omitempty"`
	Caches  int64  `json:"kv_caches,omitempty"` // bytes of all sequences on each rank, with stages on rank 0, at most
	Needs   int64  `json:"needs,omitempty"`     // bytes of the rank that needs most
	Left    int64  `json:"left,omitempty"`      // bytes of the rank that has least left
	// In tokens per second of one sequence; 0 if a rate of a host is unknown.
	Prefill float64 `json:"prefill,omitempty"` // of 512 tokens
	Decode  float64 `json:"decode,omitempty"`

	slower string // by how much it is slower than one host, "" if it is not
}

// worth reports whether stages are to be taken in place of what --share auto takes, which may be
// others.
func (a *Alternative) worth(auto *Alternative) bool {
	if auto.Chooses == stagesName {
		return a.request() <= (1-groupplan.LeastGain)*auto.request()
	}
	return groupplan.WorthStages(a.request(), auto.request())
}

// stagesName is what --share auto chooses where it takes stages.
const stagesName = "stages"

// request is the seconds of the request by which --share auto compares; 0 if unknown.
func (a Alternative) request() float64 {
	if a.Prefill == 0 || a.Decode == 0 {
		return 0
	}
	return groupplan.RequestPrompt/a.Prefill + groupplan.RequestAnswer/a.Decode
}

// compare plans the hosts with each value of --share and in stages, and recommends one. p is
// the plan for the options' own. One host has nothing to divide, and gives no alternatives.
func (o *Forecaster) compare(p *Plan) (all []Alternative, recommended string, err error) {
	if len(o.hosts) < 2 {
		return nil, "", nil
	}
	for _, share := range []groupplan.Share{{Of: parallel.ShareExperts}, {Of: parallel.ShareAll}, {Auto: true}} {
		share.Shares = o.Share.Shares
		plan := p
		if o.Stages.Given() || o.Share.Helper || what(share) != what(o.Share) {
			if plan, err = o.with(share, groupplan.Stages{}); err != nil {
				return nil, "", err
			}
		}
		all = append(all, alternative(what(share), plan))
	}
	for _, stages := range o.candidates() {
		plan, inside := p, o.Share // auto means experts inside of stages
		if inside.Auto || inside.Helper {
			inside.Auto, inside.Helper, inside.Of = false, false, parallel.ShareExperts
		}
		if !o.Stages.Given() {
			if plan, err = o.with(inside, stages); usage.Is(err) { // the model has no such stages
				plan, err = &Plan{Why: err.Error()}, nil
			}
			if err != nil {
				return nil, "", err
			}
		}
		a := alternative(inside.String(), plan)
		if a.Stages = stages.String(); plan.Fits {
			a.Stages = stagesFlag(plan.placement)
		}
		all = append(all, a)
	}
	best, recommended := recommend(all, wanted(o.hosts))
	if best != nil && best.slower != "" {
		recommended += "; one host is faster if it holds the model: the group is slower than " + best.slower
	}
	if o.Share.Helper {
		all = append(all, alternative(what(o.Share), p))
	}
	return all, recommended, nil
}

// with is the plan with another division, and its predictions.
func (o *Forecaster) with(share groupplan.Share, stages groupplan.Stages) (*Plan, error) {
	one := *o
	one.Share, one.Stages = share, stages
	plan, err := one.plan(o.hosts)
	o.tracer = one.tracer
	if err == nil && plan.Fits && predictable(o.hosts) {
		plan.Predicted, err = one.predict(plan, o.hosts)
	}
	return plan, err
}

// what is the name of what a share divides.
func what(s groupplan.Share) string {
	s.Shares = groupplan.Shares{}
	return s.String()
}

// alternative summarises a plan.
func alternative(share string, p *Plan) Alternative {
	a := Alternative{Share: share, Fits: p.Fits, Why: p.Why, Context: p.Context, Caches: p.Caches}
	a.Prefill, a.Decode = p.rates()
	if share == groupplan.AutoShare && p.Fits {
		if a.Chooses = p.Share; p.Stages != "" {
			a.Chooses = stagesName
		}
	}
	_, a.slower, _ = strings.Cut(p.Expected, "; slower than ")
	for i, r := range p.Ranks {
		a.Needs = max(a.Needs, r.Resident)
		if i == 0 || r.Free < a.Left {
			a.Left = r.Free
		}
	}
	return a
}

// rates are the predicted tokens per second of a prompt of groupplan.RequestPrompt tokens and of
// decode, 0 if they are not known.
func (p *Plan) rates() (prefill, decode float64) {
	for _, x := range p.Predicted {
		switch {
		case x.What == "decode":
			decode = x.Rate
		case x.N == groupplan.RequestPrompt:
			prefill = x.Rate
		}
	}
	return prefill, decode
}

// rateText is a predicted rate for people.
func rateText(tokens float64) string {
	if tokens == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1f t/s", tokens)
}

// recommend says which alternative to take, and why. Without one that fits it is nil. wanted is
// what predictions need.
func recommend(all []Alternative, wanted string) (*Alternative, string) {
	experts, divided, auto := &all[0], &all[1], &all[2]
	var stages *Alternative // the fastest, or the first
	for i := range all[3:] {
		if a := &all[3+i]; a.Fits && (stages == nil || a.request() < stages.request()) {
			stages = a
		}
	}
	request := fmt.Sprintf("a prompt of %d tokens and %d of an answer in", groupplan.RequestPrompt, groupplan.RequestAnswer)
	switch {
	case !auto.Fits && stages != nil:
		return stages, fmt.Sprintf("--stages %s, because nothing else has room", stages.Stages)
	case !auto.Fits:
		return nil, "none of them: " + auto.Why
	case auto.request() > 0 && stages != nil && stages.worth(auto):
		return stages, fmt.Sprintf("--stages %s: %s %.2f times the time of --share auto, which takes %s",
			stages.Stages, request, stages.request()/auto.request(), auto.Chooses)
	case !experts.Fits && !divided.Fits:
		return auto, "--share auto, which takes stages, because nothing else has room"
	case !experts.Fits || !divided.Fits:
		return auto, fmt.Sprintf("--share auto, which takes %s, because the other does not fit", auto.Chooses)
	case experts.request() == 0 || divided.request() == 0:
		return auto, "--share auto, which measures the group when it forms and takes what is faster; nothing is predicted without " + wanted
	}
	other := experts
	if auto.Chooses == experts.Share || auto.Chooses == stagesName && divided.request() < experts.request() {
		other = divided
	}
	return auto, fmt.Sprintf("--share auto, which takes %s: %s %.2f times the time of %s", auto.Chooses, request, auto.request()/other.request(), other.Share)
}

// writeAlternatives prints the alternatives side by side, with the recommendation.
func writeAlternatives(b *strings.Builder, all []Alternative, recommended string) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "divided\tcontext\tKV caches of rank 0\tneeds at most\tleft at least\tprefill of %d\tdecode\t\n", groupplan.RequestPrompt)
	for _, a := range all {
		name := a.Share
		if a.Stages != "" {
			name = stagesName + " " + a.Stages
		}
		if a.Chooses != "" {
			name += " (" + a.Chooses + ")"
		}
		if !a.Fits {
			fmt.Fprintf(t, "%s\tdoes not fit\t\t\t\t\t\t\n", name)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", name, a.Context, units.Bytes(a.Caches), units.Bytes(a.Needs), units.Bytes(a.Left), rateText(a.Prefill), rateText(a.Decode))
	}
	_ = t.Flush() // to memory
	fmt.Fprintf(b, "recommended: %s\n", recommended)
}
