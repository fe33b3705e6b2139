package main

import (
	"encoding/json"
	"regexp"
	"strings"
)

// event is one of go test -json.
type event struct {
	Action  string
	Package string `json:",omitempty"`
	Test    string `json:",omitempty"`
	Output  string `json:",omitempty"`
}

// skip is a skipped test, where with its stage, package and name.
type skip struct{ where, reason string }

// stage collects the events of one stage.
type stage struct {
	name    string
	passed  int
	failed  []string
	skipped []skip
	output  map[string]*strings.Builder // of the tests that are running
	broken  map[string]bool             // packages with a failed test
}

func newStage(name string) *stage {
	return &stage{name: name, output: map[string]*strings.Builder{}, broken: map[string]bool{}}
}

func (s *stage) counts() (passed, failed, skipped int) {
	return s.passed, len(s.failed), len(s.skipped)
}

var (
	unchecked = regexp.MustCompile(`NOT CHECKED|NOTHING WAS CHECKED`)
	// place is where a test called Skip: "    file.go:12: ".
	place = regexp.MustCompile(`^\s+\S+\.go:\d+:\s*`)
)

// line takes a line of output and returns what is shown of it.
func (s *stage) line(line string) string {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		if unchecked.MatchString(line) {
			s.skipped = append(s.skipped, skip{s.name + ": ", strings.TrimSpace(line)})
		}
		return line + "\n"
	}
	key := e.Package + ": " + e.Test
	switch e.Action {
	case "build-output":
		return e.Output
	case "output":
		if e.Test == "" {
			return shownOf(e.Output)
		}
		if s.output[key] == nil {
			s.output[key] = &strings.Builder{}
		}
		s.output[key].WriteString(e.Output)
	case "pass", "skip", "fail":
		return s.end(e, key)
	}
	return ""
}

// shownOf keeps of a package's own output what go test shows without -v.
func shownOf(line string) string {
	if line == "PASS\n" || strings.HasSuffix(line, "[no test files]\n") {
		return ""
	}
	return line
}

// end counts a test or package that has ended.
func (s *stage) end(e event, key string) string {
	text := ""
	if b := s.output[key]; b != nil {
		text = b.String()
		delete(s.output, key)
	}
	switch {
	case e.Action == "fail" && e.Test != "":
		s.failed = append(s.failed, s.name+": "+key)
		s.broken[e.Package] = true
		return text
	case e.Action == "fail" && !s.broken[e.Package]:
		// It was not built, or ended outside a test: then some test never ended.
		s.failed = append(s.failed, s.name+": "+e.Package)
		for k, b := range s.output {
			if strings.HasPrefix(k, e.Package+": ") {
				text += b.String()
			}
		}
		return text
	case e.Test == "":
		return ""
	case e.Action == "pass":
		s.passed++
	default:
		s.skipped = append(s.skipped, skip{s.name + ": " + key + ": ", reason(text)})
	}
	return ""
}

// reason is the message of the call that skipped a test, its first line.
func reason(output string) string {
	why := "no reason given"
	take := false
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		at := place.FindString(line)
		if at != "" {
			why = strings.TrimSpace(line[len(at):])
			take = why == "" // the message begins on the next line
		} else if take && strings.TrimSpace(line) != "" {
			why, take = strings.TrimSpace(line), false
		}
	}
	return why
}
