package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"ringmaster/internal/units"
)

// Comparison is a line of bench --json with the times of steps that took turns: of several
// numbers of sequences in one precision, or of several precisions with one number.
type Comparison struct {
	What  string `json:"what"` // comparison
	Of    string `json:"of"`   // prefill or decode
	N     int    `json:"n"`
	Depth int    `json:"depth"`
	By    string `json:"by"` // sequences, drafts or activations
	// Values are the numbers of sequences, drafts or bits that are compared.
	Values []int `json:"values"`
	// What all of them have in common: Sequences, unless they are compared, Drafts and, if
	// there were several, Activations.
	Sequences   int `json:"sequences,omitempty"`
	Drafts      int `json:"drafts,omitempty"`
	Activations int `json:"activations,omitempty"`
	// Rows have the whole step, by the median of the repetitions, and with --profile each
	// of its ops, by the mean.
	Rows []ComparedTime `json:"rows"`
}

// ComparedTime is the times of a step or of one of its ops, for each of Values.
type ComparedTime struct {
	Op      string    `json:"op"` // (all) for the whole step
	Seconds []float64 `json:"seconds"`
	Ratios  []float64 `json:"ratios,omitempty"` // to the first; empty if that is 0
}

// steps is how many steps a repetition has; a whole prefill counts as one.
func (m *Measurement) steps() int {
	if m.What == "prefill" {
		return 1
	}
	return m.N
}

// comparisons returns those of t, by sequences first.
func (t turns) comparisons() []Comparison {
	var all []Comparison
	// key has what m has in common with others, but for what is compared.
	key := func(m *Measurement, by string) (c Comparison) {
		c.Sequences, c.Drafts, c.Activations = m.Sequences, m.Drafts, m.Activations
		switch by {
		case "sequences":
			c.Sequences = 0
		case "drafts":
			c.Drafts = 0
		default:
			c.Activations = 0
		}
		return c
	}
	same := func(a, b Comparison) bool {
		return a.Sequences == b.Sequences && a.Drafts == b.Drafts && a.Activations == b.Activations
	}
	add := func(by string, value func(*Measurement) int) {
		for i, m := range t {
			c := key(m, by)
			is := func(o *Measurement) bool { return same(key(o, by), c) }
			if slices.IndexFunc(t, is) < i {
				continue // compared already
			}
			var group turns
			for _, o := range t {
				if is(o) {
					group = append(group, o)
				}
			}
			if len(group) < 2 {
				continue
			}
			c.What, c.Of, c.N, c.Depth, c.By, c.Rows = "comparison", m.What, m.N, m.Depth, by, group.rows()
			for _, o := range group {
				c.Values = append(c.Values, value(o))
			}
			all = append(all, c)
		}
	}
	add("sequences", func(m *Measurement) int { return m.Sequences })
	add("drafts", func(m *Measurement) int { return m.Drafts })
	add("activations", func(m *Measurement) int { return m.Activations })
	return all
}

// rows compares the measurements of t with the first.
func (t turns) rows() []ComparedTime {
	all := ComparedTime{Op: "(all)"}
	for _, m := range t {
		all.Seconds = append(all.Seconds, median(m.Seconds)/float64(m.steps()))
	}
	rows := []ComparedTime{all}
	for i, m := range t {
		for _, o := range m.ops {
			at := slices.IndexFunc(rows, func(r ComparedTime) bool { return r.Op == o.Name })
			if at < 0 {
				at = len(rows)
				rows = append(rows, ComparedTime{Op: o.Name, Seconds: make([]float64, len(t))})
			}
			rows[at].Seconds[i] = o.Time.Seconds() / float64(m.steps()*len(m.Seconds))
		}
	}
	for i := range rows {
		for _, s := range rows[i].Seconds {
			if rows[i].Seconds[0] > 0 {
				rows[i].Ratios = append(rows[i].Ratios, s/rows[i].Seconds[0])
			}
		}
	}
	return rows
}

// compare prints the comparisons of t.
func (b *bench) compare(t turns) error {
	for _, c := range t.comparisons() {
		write := c.write
		if b.o.JSON {
			write = func(w io.Writer) error { return json.NewEncoder(w).Encode(c) }
		}
		if err := write(b.w); err != nil {
			return err
		}
	}
	return nil
}

// write prints c as a table: milliseconds for each value, then the ratios to the first.
func (c Comparison) write(w io.Writer) error {
	what := fmt.Sprintf("a decode step of %s", units.Count(c.Sequences, "sequence"))
	switch {
	case c.Of == "prefill":
		what = fmt.Sprintf("a prefill of %d tokens", c.N)
	case c.By == "sequences":
		what = "a decode step by sequences"
	}
	if c.Drafts > 0 {
		what += " with " + units.Count(c.Drafts, "draft") + " each"
	}
	switch c.By {
	case "activations":
		what += " by bits of activations"
	case "drafts":
		what += " by drafts of each"
	}
	if c.Activations > 0 {
		what += fmt.Sprintf(", %d-bit activations", c.Activations)
	}
	if _, err := fmt.Fprintf(w, "%s, ms, and the ratio to the first:\n", what); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	var head strings.Builder
	for _, v := range c.Values {
		fmt.Fprintf(&head, "%d\t", v)
	}
	for _, v := range c.Values[1:] {
		fmt.Fprintf(&head, "%d/%d\t", v, c.Values[0])
	}
	fmt.Fprintln(t, head.String()+" op")
	for _, r := range c.Rows {
		for _, s := range r.Seconds {
			fmt.Fprintf(t, "%.3f\t", 1e3*s)
		}
		for i := range c.Values[1:] {
			if len(r.Ratios) > 0 {
				fmt.Fprintf(t, "%.2f", r.Ratios[i+1])
			}
			fmt.Fprint(t, "\t")
		}
		fmt.Fprintln(t, " "+r.Op)
	}
	return t.Flush()
}
