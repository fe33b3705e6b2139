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
	By    string `json:"by"` // sequences or activations
	// Values are the numbers of sequences or of bits that are compared.
	Values      []int `json:"values"`
	Sequences   int   `json:"sequences,omitempty"`   // of all of them, by activations
	Activations int   `json:"activations,omitempty"` // of all of them, by sequences, if there were several
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
	add := func(by string, same, value func(*Measurement) int) {
		for i, m := range t {
			is := func(o *Measurement) bool { return same(o) == same(m) }
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
			c := Comparison{What: "comparison", Of: m.What, N: m.N, Depth: m.Depth, By: by, Rows: group.rows()}
			for _, o := range group {
				c.Values = append(c.Values, value(o))
			}
			if by == "activations" {
				c.Sequences = m.Sequences
			} else {
				c.Activations = m.Activations
			}
			all = append(all, c)
		}
	}
	sequences := func(m *Measurement) int { return m.Sequences }
	activations := func(m *Measurement) int { return m.Activations }
	add("sequences", activations, sequences)
	add("activations", sequences, activations)
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
		if c.Activations > 0 {
			what += fmt.Sprintf(", %d-bit activations", c.Activations)
		}
	}
	if c.By == "activations" {
		what += " by bits of activations"
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
