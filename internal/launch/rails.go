package launch

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/rails"
)

// rdma is the transport for which cables are found.
const rdma = "rdma"

// deviceMatrix is the matrix of RDMA devices that every rank is given.
type deviceMatrix struct {
	text  []byte   // nil: none is used
	name  string   // of the file on the hosts
	paths []string // on the hosts, [size]
	ring  bool     // a ring is requested
}

// environment is the beginning of the command line of a rank.
func (m deviceMatrix) environment(rank int) []string {
	out := []string{"env", "JACCL_IBV_DEVICES=" + m.paths[rank], "MLX_IBV_DEVICES=" + m.paths[rank]}
	if m.ring {
		out = append(out, "JACCL_RING=1")
	}
	return out
}

// findRails asks all hosts for their RDMA devices, finds the cables and shows them.
func (g *group) findRails(ctx context.Context) error {
	g.say("looking for the RDMA devices of %s", strings.Join(g.Hosts, " "))
	command := func(rank int) string {
		return "exec " + quote([]string{g.Program, "rails", "here", "--json", "--name", g.Hosts[rank]})
	}
	reports, bad := make([]rails.Report, g.size), problems{}
	for r, a := range g.atAll(ctx, command, "") {
		err := a.err
		if err == nil {
			reports[r], err = rails.ParseReport("what the host says", []byte(a.out))
		}
		if err != nil {
			bad.add("%s: rails: %v", g.name(r), err)
		}
	}
	if err := bad.err(g); err != nil {
		return err
	}
	ring := matrix.RingWanted(g.Lookup)
	plan, err := rails.MakePlan(reports, g.Switched, ring)
	g.say("RDMA cables:")
	for line := range strings.Lines(plan.Map) {
		g.print(g.Says, "  "+line)
	}
	if err != nil {
		return fmt.Errorf("%w; run ringmaster rails here on each host to see its devices; --transport tcp needs no RDMA", err)
	}
	m := &g.matrix
	m.text, m.ring = plan.Matrix.Format(), ring
	// The name depends on the content: a restarted rank finds the same file, and another
	// cluster does not overwrite it.
	m.name = fmt.Sprintf("matrix-%d-%d.json", crc32.ChecksumIEEE(m.text), len(m.text))
	for range g.size {
		m.paths = append(m.paths, "$HOME/.cache/ringmaster/"+m.name) // until putMatrix has written it
	}
	return nil
}

// putMatrix writes the matrix on every host.
func (g *group) putMatrix(ctx context.Context) error {
	m := &g.matrix
	if m.text == nil {
		return nil
	}
	// Moved into place, so that a rank never reads an incomplete file.
	const script = `umask 077
d=${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster
mkdir -p "$d" && cat >"$d/$1.$$" && mv -f "$d/$1.$$" "$d/$1" && echo "matrix $d/$1"`
	command := "sh -c " + quote([]string{script, "launch", m.name})
	bad := problems{}
	for r, a := range g.atAll(ctx, func(int) string { return command }, string(m.text)) {
		m.paths[r] = facts(a.out).get("matrix")
		if a.err != nil || m.paths[r] == "" {
			bad.add("%s: the device matrix could not be written to ~/.cache/ringmaster: %v", g.name(r), a.err)
		}
	}
	return bad.err(g)
}
