package main

import (
	"encoding/json"
	"regexp"
	"strings"

	"ringmaster/internal/testenv"
)

// event is one of go test -json.
type event struct {
	Action  string
	Package string  `json:",omitempty"`
	Test    string  `json:",omitempty"`
	Output  string  `json:",omitempty"`
	Key     string  `json:",omitempty"` // of an attribute
	Value   string  `json:",omitempty"`
	Elapsed float64 `json:",omitempty"` // seconds of a test or package
}

// skip is a skipped test, where with its stage, package and name. level is what
// testenv.Need said of it, or empty.
type skip struct{ where, reason, level string }

// stageLevel is the action of the line that tells the level of a stage.
const stageLevel = "stage level"

// stage collects the events of one stage.
type stage struct {
	name    string
	full    bool               // it ran the full form
	passed  int                // tests, those within tests too
	outer   int                // of them, functions of test files
	ran     map[string]bool    // packages in which a test ended
	empty   []string           // packages in which none did
	took    map[string]float64 // seconds, by package
	levels  map[string]string  // of testenv.Need, by test
	failed  []string
	skipped []skip
	output  map[string]*strings.Builder // of the tests that are running
	broken  map[string]bool             // packages with a failed test
}

func newStage(name string) *stage {
	return &stage{name: name, ran: map[string]bool{}, took: map[string]float64{}, levels: map[string]string{}, output: map[string]*strings.Builder{}, broken: map[string]bool{}}
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
			s.skipped = append(s.skipped, skip{where: s.name + ": ", reason: strings.TrimSpace(line)})
		}
		return line + "\n"
	}
	key := e.Package + ": " + e.Test
	switch e.Action {
	case stageLevel:
		s.full = e.Value == "full"
	case "attr":
		if e.Key == testenv.Attribute {
			s.levels[key] = e.Value
		}
	case "build-output":
		return e.Output
	case "output":
		if e.Test == "" {
			// go test also says so if a process that a test started did.
			if strings.HasSuffix(e.Output, "[no tests to run]\n") && !s.ran[e.Package] {
				s.empty = append(s.empty, e.Package)
			}
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
	if e.Test == "" {
		s.took[e.Package] = e.Elapsed
	} else {
		s.ran[e.Package] = true
	}
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
		// The package was not built, or ended outside a test: some test then never ended.
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
		if !strings.Contains(e.Test, "/") {
			s.outer++
		}
	default:
		s.skipped = append(s.skipped, skip{s.name + ": " + key + ": ", reason(text), s.levels[key]})
	}
	return ""
}

// leftOut reports whether a skip is one of testenv.Need at a level above that of the stage.
func (s *stage) leftOut(k skip) bool {
	return k.level == "exhaustive" || k.level == "full" && !s.full
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
