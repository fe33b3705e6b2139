package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringmaster/distributed"
	"ringmaster/model"
	"ringmaster/replica"
)

// Arbiter is the verifying host, with its own copy of the model's file.
type Arbiter interface {
	Examine(p model.Piece) ([]model.Sum, error)
}

// Difference is a place where a rank differs from the others.
type Difference struct {
	Ranks   []int  `json:"ranks"` // the wrong ones; if Unclear, the candidates
	Unclear bool   `json:"unclear,omitempty"`
	What    string `json:"what"` // "weights" or "result"
	Kind    string `json:"kind"` // name of the tensor, or expert output
	Layer   int    `json:"layer"`
	Expert  int    `json:"expert"` // -1 for none
	First   int    `json:"row,omitempty"`
	Rows    int    `json:"rows,omitempty"`
	// Hosts has the names of the hosts of Ranks; nil if they are not known.
	Hosts []string `json:"hosts,omitempty"`
}

// String names rank, layer and kind.
func (d Difference) String() string {
	ranks := make([]string, len(d.Ranks))
	for i, r := range d.Ranks {
		host := ""
		if i < len(d.Hosts) {
			host = d.Hosts[i]
		}
		ranks[i] = nameOf(r, host)
	}
	where := d.Kind
	if d.Layer >= 0 {
		where = fmt.Sprintf("layer %d, %s", d.Layer, strings.TrimPrefix(where, fmt.Sprintf("blk.%d.", d.Layer)))
	}
	if d.Expert >= 0 {
		where += fmt.Sprintf(" of expert %d", d.Expert)
	}
	if d.Rows > 0 {
		where += fmt.Sprintf(", rows %d to %d", d.First, d.First+d.Rows-1)
	}
	what := "other weights in memory than the others have"
	if d.What == "result" {
		what = "the same weights and another result"
	}
	if d.Unclear {
		what = strings.Replace(what, " than the others have", ", one of them wrong ones", 1)
		return fmt.Sprintf("%s: %s have %s", where, strings.Join(ranks, " and "), what)
	}
	return fmt.Sprintf("%s: %s: %s", strings.Join(ranks, ", "), where, what)
}

// arbiter is the number of the host that verifies among ranks.
const arbiter = -1

func nameOf(rank int, host string) string {
	if rank == arbiter {
		return "this host"
	}
	return distributed.RankName(rank, host)
}

// mostDifferences is how many a report keeps.
const mostDifferences = 1000

// Recompute checks what each rank has of the model in memory and what it computes with
// it. Another rank computes the same. So does the arbiter if it is not nil; its results
// count if its kernels are those of the ranks. No rank needs more of the model than it
// can map from its file.
func (x *Examination) Recompute(ctx context.Context, host Arbiter, kernels string, seed uint64) (Check, []Difference, error) {
	c := &comparison{x: x, host: host, same: kernels, seed: seed, c: Check{Name: "recompute", Verdict: Pass, Figures: map[string]float64{}}}
	if len(x.group.Ranks) < 2 && host == nil {
		c.c.Verdict, c.c.Detail = NotChecked, "one rank has no other to compare with: give this host the model's file (--model)"
		return c.c, nil, nil
	}
	e := x.group.Extent
	for _, layer := range e.Layers {
		if err := c.all(ctx, layer, e.Experts); err != nil {
			return c.c, nil, err
		}
		x.progress("recompute: layer %d of %d", layer, e.Layers[len(e.Layers)-1])
	}
	x.progress("recompute: other weights")
	if err := c.all(ctx, -1, e.Blocks); err != nil {
		return c.c, nil, err
	}
	f := c.c.Figures
	f["layers"], f["experts_of_a_layer"], f["sums"], f["different"] = float64(len(e.Layers)), float64(e.Experts), float64(c.sums), float64(c.different)
	f["pieces"], f["longest_pause_seconds"], f["pauses_seconds"] = float64(x.asked), x.longest.Seconds(), x.paused.Seconds()
	by := "by its owner and the next rank"
	if host != nil {
		by += " and this host"
	}
	if c.different == 0 {
		c.c.Detail = fmt.Sprintf("%d experts in each of %d layers computed %s, all other weights on every rank: the same bits in %d sums; no pause longer than %v",
			e.Experts, len(e.Layers), by, c.sums, x.longest.Round(100_000))
		return c.c, nil, nil
	}
	c.c.Verdict = Fail
	lines := make([]string, 0, 4)
	for _, d := range c.found[:min(len(c.found), 4)] {
		lines = append(lines, d.String())
	}
	c.c.Detail = fmt.Sprintf("%d of %d sums differ: %s", c.different, c.sums, strings.Join(lines, "; "))
	if rest := c.different - len(lines); rest > 0 {
		c.c.Detail += fmt.Sprintf("; and %d more", rest)
	}
	if slices.ContainsFunc(c.found, func(d Difference) bool { return d.Unclear }) {
		c.c.Detail += "; with --model FILE this host decides who is wrong"
	}
	return c.c, c.found, nil
}

// comparison is a running Recompute.
type comparison struct {
	x         *Examination
	host      Arbiter
	same      string // kernels of the host
	seed      uint64
	c         Check
	sums      int
	different int
	found     []Difference
}

// all compares the experts of a layer, or with layer -1 everything else.
func (c *comparison) all(ctx context.Context, layer, count int) error {
	n := 1
	for from := 0; from < count; {
		t := replica.Task{Piece: model.Piece{Layer: layer, From: from, To: min(from+n, count), Seed: c.seed}}
		a, err := c.x.do(ctx, t)
		if err != nil {
			return err
		}
		if err := c.compare(ctx, t, a.Found); err != nil {
			return err
		}
		from = t.Piece.To
		n = c.x.adapt(n, model.MostPiece, a.Took)
	}
	return nil
}

// place identifies what a sum was computed of.
type place struct {
	name                string
	layer, expert, rows int
	first               int
}

func placeOf(s model.Sum) place { return place{s.Name, s.Layer, s.Expert, s.Rows, s.First} }

// view is what ranks have found at a place.
type view map[int]model.Sum

// views returns those of all places, and the places in their order.
func views(found []replica.Finding) (map[place]view, []place) {
	all, order := map[place]view{}, []place(nil)
	for _, f := range found {
		for _, s := range f.Sums {
			p := placeOf(s)
			if all[p] == nil {
				all[p] = view{}
				order = append(order, p)
			}
			all[p][f.Rank] = s
		}
	}
	return all, order
}

// compare compares what was found of a piece, and asks all ranks about experts that two
// ranks have found differently.
func (c *comparison) compare(ctx context.Context, t replica.Task, found []replica.Finding) error {
	if c.host != nil {
		sums, err := c.host.Examine(t.Piece)
		if err != nil {
			return fmt.Errorf("this host cannot examine: %w", err)
		}
		found = append(slices.Clone(found), replica.Finding{Rank: arbiter, Sums: sums})
	}
	all, order := views(found)
	ask := map[int]bool{} // experts
	for _, p := range order {
		if len(all[p]) < min(2, len(c.x.group.Ranks)) {
			return fmt.Errorf("%s of layer %d, expert %d, was computed by one rank only", p.name, p.layer, p.expert)
		}
		if !t.Everyone {
			c.sums++
		}
		if c.agree(all[p]) {
			continue
		}
		if p.expert >= 0 && !t.Everyone {
			ask[p.expert] = true
			continue
		}
		c.judge(p, all)
	}
	for _, e := range slices.Sorted(maps.Keys(ask)) {
		again := replica.Task{Everyone: true, Piece: model.Piece{Layer: t.Piece.Layer, From: e, To: e + 1, Seed: c.seed}}
		a, err := c.x.do(ctx, again)
		if err != nil {
			return err
		}
		before := c.different
		if err := c.compare(ctx, again, a.Found); err != nil {
			return err
		}
		if c.different == before { // it was different, and no longer is
			return errors.New("two ranks differed once and agreed when they were asked again: a memory or a processor is not reliable; run verify again")
		}
	}
	return nil
}

// agree reports whether all have found the same.
func (c *comparison) agree(v view) bool {
	w, _ := c.split(v, func(s model.Sum) uint32 { return s.Weights }, true)
	r, _ := c.split(v, func(s model.Sum) uint32 { return s.Result }, false)
	return len(w) == 0 && len(r) == 0
}

// split returns the ranks that are wrong about a value, none if all agree. This is clear
// if the verifying host has a value (it counts for weights, or if its kernels are those
// of the rank), or if more than half agree.
func (c *comparison) split(v view, of func(model.Sum) uint32, weights bool) (wrong []int, clear bool) {
	votes, right, counted := map[uint32]int{}, uint32(0), 0
	for _, r := range slices.Sorted(maps.Keys(v)) {
		if r == arbiter && !weights && !c.kernelsAgree() {
			continue
		}
		value := of(v[r])
		counted++
		votes[value]++
		if r == arbiter {
			right, clear = value, true
		}
	}
	if len(votes) < 2 {
		return nil, true
	}
	if !clear {
		for value, n := range votes {
			if 2*n > counted {
				right, clear = value, true
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(v)) {
		if r != arbiter && (!clear || of(v[r]) != right) {
			wrong = append(wrong, r)
		}
	}
	return wrong, clear
}

// kernelsAgree reports whether results of this host have the bits of those of the ranks.
func (c *comparison) kernelsAgree() bool {
	return !slices.ContainsFunc(c.x.group.Kernels, func(k string) bool { return k != c.same })
}

// judge records the differences at a place. It does not repeat a result that follows from
// other weights of the same expert.
func (c *comparison) judge(p place, all map[place]view) {
	weights, clear := c.split(all[p], func(s model.Sum) uint32 { return s.Weights }, true)
	d := Difference{Ranks: weights, Unclear: !clear, What: "weights", Kind: p.name, Layer: p.layer, Expert: p.expert, First: p.first, Rows: p.rows}
	if len(weights) == 0 {
		d.What = "result"
		d.Ranks, clear = c.split(all[p], func(s model.Sum) uint32 { return s.Result }, false)
		d.Unclear = !clear
		for q, v := range all {
			if p.expert < 0 || q.layer != p.layer || q.expert != p.expert || q == p {
				continue
			}
			if w, _ := c.split(v, func(s model.Sum) uint32 { return s.Weights }, true); len(w) > 0 {
				return
			}
		}
	}
	c.different++
	if len(c.x.group.Hosts) > 0 {
		for _, r := range d.Ranks {
			d.Hosts = append(d.Hosts, c.x.group.host(r))
		}
	}
	if len(c.found) < mostDifferences {
		c.found = append(c.found, d)
	}
}
