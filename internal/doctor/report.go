package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Severity orders findings.
type Severity int

// The severities, from harmless on.
const (
	OK      Severity = iota // as it should be; shown because the user asked
	Note                    // worth knowing
	Warning                 // slow, or will fail under some conditions
	Error                   // will not work, or gives wrong results
)

var severityNames = []string{"ok", "note", "warning", "error"}

// String returns the name of a severity.
func (s Severity) String() string { return severityNames[s] }

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severityNames, string(text))
	if i < 0 {
		return fmt.Errorf("severity %q; expected one of %s", text, strings.Join(severityNames, ", "))
	}
	*s = Severity(i)
	return nil
}

// Finding is the result of a check of a host.
type Finding struct {
	Host     string   `json:"host"` // "": about all hosts together
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Evidence string   `json:"evidence"`       // what was observed, in figures
	Cure     string   `json:"cure,omitempty"` // what to do; "" if nothing needs doing
	Unproven bool     `json:"unproven,omitempty"`
}

// Report is the result of an examination.
type Report struct {
	Hosts    []Facts   `json:"hosts"`
	Findings []Finding `json:"findings"`
}

// Worst returns the highest severity of a report.
func (r *Report) Worst() Severity {
	worst := OK
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// ExitCode returns the program's exit code for a report: 0 without warnings, 3 with some,
// 4 with errors.
func (r *Report) ExitCode() int {
	switch r.Worst() {
	case Error:
		return 4
	case Warning:
		return 3
	}
	return 0
}

// Examine runs all checks on the facts of the hosts, which are in the order of the ranks.
func Examine(hosts []Facts) *Report {
	r := &Report{Hosts: hosts, Findings: []Finding{}}
	for i := range hosts {
		h := &hosts[i]
		for _, c := range hostChecks {
			for _, f := range c.find(h) {
				f.Host, f.Check = h.Host, c.name
				r.Findings = append(r.Findings, f)
			}
		}
	}
	if len(hosts) > 1 {
		for _, c := range groupChecks {
			for _, f := range c.find(hosts) {
				f.Check = c.name
				r.Findings = append(r.Findings, f)
			}
		}
	}
	return r
}

// Write prints a report for people: each host in turn, then what concerns all.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	names := make([]string, len(r.Hosts))
	for i, h := range r.Hosts {
		names[i] = h.Host
	}
	for _, f := range r.Findings {
		if f.Host != "" && !slices.Contains(names, f.Host) {
			names = append(names, f.Host)
		}
	}
	for _, name := range append(names, "") {
		title := name
		if name == "" {
			title = "all hosts together"
		}
		first := true
		for _, f := range r.Findings {
			if f.Host != name {
				continue
			}
			if first {
				fmt.Fprintf(&b, "%s\n", title)
				first = false
			}
			fmt.Fprintf(&b, "  %-8s %-10s %s", f.Severity, f.Check, f.Evidence)
			if f.Unproven {
				b.WriteString(" (unproven: from documents, not tried on a Mac)")
			}
			b.WriteString("\n")
			if f.Cure != "" {
				fmt.Fprintf(&b, "  %-8s %-10s -> %s\n", "", "", f.Cure)
			}
		}
	}
	fmt.Fprintf(&b, "worst: %s\n", r.Worst())
	_, err := io.WriteString(w, b.String())
	return err
}
