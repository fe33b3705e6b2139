package launch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"ringmaster/internal/safetext"
)

// probeScript finds out what must be known of a host before a rank is started there.
//
//go:embed probe.sh
var probeScript string

// facts is what probeScript has printed on a host.
type facts string

// get returns the first fact with a key, "" if there is none.
func (f facts) get(key string) string {
	for line := range strings.Lines(string(f)) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			return safetext.Drop(strings.TrimSpace(value))
		}
	}
	return ""
}

// complete reports whether the script has run to its end.
func (f facts) complete() bool { return strings.HasSuffix(strings.TrimSpace(string(f)), "\nend") }

// orNone is a path, or the - by which the script is told that there is none.
func orNone(path string) string {
	if path == "" {
		return "-"
	}
	return path
}

// problems is what a person has to do on the hosts first.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// err is nil without a problem. All but the last are said on lines before it.
func (p problems) err(g *group) error {
	if len(p) == 0 {
		return nil
	}
	for _, text := range p[:len(p)-1] {
		g.say("%s", text)
	}
	return errors.New(p[len(p)-1])
}

// probe asks all hosts for their facts and refuses hosts on which a rank cannot start, or
// that differ in what must be the same.
func (g *group) probe(ctx context.Context) ([]facts, error) {
	command := "sh -s -- " + quote([]string{g.Program, orNone(g.Model), orNone(g.Key)})
	answers := g.atAll(ctx, func(int) string { return command }, probeScript)
	all, bad := make([]facts, g.size), problems{}
	for r, a := range answers {
		all[r] = facts(a.out)
		if !all[r].complete() {
			why := "it did not answer as expected"
			if a.err != nil {
				why = a.err.Error()
			}
			bad.add("%s: ssh failed: %s. Try: %s %s true", g.name(r), why, strings.Join(g.SSH, " "), g.target(r))
			continue
		}
		g.missing(r, all[r], &bad)
	}
	if len(bad) == 0 {
		for r := 1; r < g.size; r++ {
			g.differing(r, all[r], all[0], &bad)
		}
	}
	return all, bad.err(g)
}

// missing adds what a host lacks.
func (g *group) missing(rank int, f facts, bad *problems) {
	switch out := f.get("binary"); {
	case strings.HasPrefix(out, "ok"):
	case out == "missing":
		bad.add("%s: %s not found; install it there, or give its path with --binary", g.name(rank), g.Program)
	case out == "not-executable":
		bad.add("%s: %s is not executable; run chmod +x on it", g.name(rank), g.Program)
	default:
		bad.add("%s: %s does not run: %s", g.name(rank), g.Program, strings.TrimPrefix(out, "fails "))
	}
	if out := f.get("model"); g.Model != "" && !strings.HasPrefix(out, "ok") {
		bad.add("%s: model %s is %s; every host needs the file under this path", g.name(rank), g.Model, out)
	}
	if out := f.get("key"); g.Key != "" && !strings.HasPrefix(out, "ok") {
		bad.add("%s: key file %s is %s; every host needs the same file under this path", g.name(rank), g.Key, out)
	}
}

// differing adds what a rank has otherwise than rank 0.
func (g *group) differing(rank int, f, first facts, bad *problems) {
	value := func(f facts, key string) string { return strings.TrimPrefix(f.get(key), "ok ") }
	if ours, theirs := value(first, "binary"), value(f, "binary"); ours != theirs {
		bad.add("%s has version %s, %s has %s; install the same everywhere", g.name(rank), theirs, g.name(0), ours)
	}
	if ours, theirs := value(first, "model"), value(f, "model"); ours != theirs {
		bad.add("model %s has %s bytes on %s, %s on %s; copy it again", g.Model, theirs, g.name(rank), ours, g.name(0))
	}
	if ours, theirs := value(first, "key"), value(f, "key"); ours != theirs {
		bad.add("key file %s on %s differs from that of %s; copy it again", g.Key, g.name(rank), g.name(0))
	}
}
