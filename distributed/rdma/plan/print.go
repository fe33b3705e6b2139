package plan

import (
	"fmt"
	"strings"
)

// String lists the ops of the program, one on a line, for people:
//
//	2 +1 rank 1 -> 2  4096 float32 in 4  scratch+0 (3 chunks) -> slot  after 1
//
// is op 2, one round behind, from rank 1 to 2: 4096 partial sums in four chunks,
// read in a window of three chunks of scratch memory and held in their slots,
// each after op 1 has made it. A wait for an earlier chunk shows how many chunks
// back: 5~3.
func (p *Program) String() string {
	var b strings.Builder
	for i := range p.Ops {
		o := &p.Ops[i]
		fmt.Fprintf(&b, "%d +%d ", i, o.Lag)
		from := o.Read.String()
		switch o.Kind {
		case Move:
			fmt.Fprintf(&b, "rank %d -> %d", o.From, o.To)
		case Copy:
			fmt.Fprintf(&b, "rank %d copy", o.To)
		case Reduce:
			fmt.Fprintf(&b, "rank %d reduce", o.To)
			var in []string
			for _, x := range o.Inputs {
				s := x.Ref.String()
				if x.Recv >= 0 {
					s = fmt.Sprintf("slot of %d", x.Recv)
				}
				in = append(in, s)
			}
			from = strings.Join(in, ", ")
		}
		wide := ""
		if o.Wide {
			wide = " float32"
		}
		fmt.Fprintf(&b, "  %d%s in %d  %s -> %s", o.Elems, wide, p.Chunks(i), from, o.Write)
		if all := append(append([]Dep(nil), o.ReadAfter...), o.WriteAfter...); len(all) > 0 {
			b.WriteString("  after")
			for _, d := range all {
				fmt.Fprintf(&b, " %d", d.Op)
				if d.Back > 0 {
					fmt.Fprintf(&b, "~%d", d.Back)
				}
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r Ref) String() string {
	switch {
	case r.Space == None || r.Space == Slot:
		return r.Space.String()
	case r.Window > 0:
		return fmt.Sprintf("%v+%d (%d chunks)", r.Space, r.Off, r.Window)
	}
	return fmt.Sprintf("%v+%d", r.Space, r.Off)
}
