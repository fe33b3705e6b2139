// Command report runs the stages of scripts/test.sh and sums them up.
//
//	report -dir D -stage NAME -least N COMMAND...   runs a command that prints the output of go test -json
//	report -dir D -summary [-allow FILE]            tells what passed, failed and was skipped
//
// A stage shows one line for each package and the output of tests that failed;
// the events go to D/NAME.json. Scripts that run tests by themselves put more
// files D/NAME-*.json there. Lines that are no events are passed on; one that says NOT
// CHECKED counts as a skipped test of the stage.
//
// A stage fails if fewer than N functions Test, Fuzz and Example passed, or if -run
// chose no test of one of its packages: then a name has changed, or tests are gone. A
// floor of 0 demands nothing, for stages that got arguments of a person.
//
// The summary names every reason for which a test was skipped. With -allow a skip is a
// failure unless testenv.Need left the test out because of the level of the stage, or a
// line of FILE allows it: each is a regular expression for "STAGE: PACKAGE: TEST:
// REASON" that begins with ^, ends with $ and names a test; lines with # are comments.
// It also lists the packages that took longest. Its last line is "N passed, N failed, N skipped".
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ringmaster/internal/testenv"
)

func main() {
	dir := flag.String("dir", "", "folder of the events")
	stage := flag.String("stage", "", "name of the stage to run")
	sum := flag.Bool("summary", false, "sum up the stages that ran")
	least := flag.Int("least", 0, "how many functions of test files must pass in the stage")
	allow := flag.String("allow", "", "file of the skips that are no failure")
	flag.Parse()
	good, err := false, error(nil)
	switch {
	case *dir == "" || *sum == (*stage != ""):
		err = fmt.Errorf("want -dir with either -stage or -summary")
	case *sum:
		good, err = summary(os.Stdout, *dir, *allow)
	default:
		good, err = run(os.Stdout, *dir, *stage, *least, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

// run executes a stage and reports whether it passed.
func run(out io.Writer, dir, stage string, least int, args []string) (bool, error) {
	if len(args) == 0 {
		return false, fmt.Errorf("stage %s: no command", stage)
	}
	file, err := os.Create(filepath.Join(dir, stage+".json"))
	if err != nil {
		return false, err
	}
	defer file.Close()
	cmd := exec.Command(args[0], args[1:]...)
	output, input, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = input, input
	err = cmd.Start()
	input.Close()
	if err != nil {
		return false, err
	}
	level := "fast"
	if testenv.At(testenv.Full) {
		level = "full"
	}
	if err := write(file, event{Action: stageLevel, Value: level}); err != nil {
		return false, err
	}
	s := newStage(stage)
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			if shown := s.line(strings.TrimSuffix(line, "\n")); shown != "" {
				fmt.Fprint(out, shown)
			}
			if _, err := io.WriteString(file, line); err != nil {
				return false, err
			}
		}
		if err != nil {
			break // the command has closed its output
		}
	}
	err = cmd.Wait()
	_, failed, _ := s.counts()
	good := err == nil && failed == 0
	if err != nil && failed == 0 {
		// The summary must not miss a command that fails without a failed test.
		if err := write(file, event{Action: "fail", Package: stage}); err != nil {
			return false, err
		}
	}
	missing, err := s.missing(dir, least)
	if err != nil {
		return false, err
	}
	for _, m := range missing {
		good = false
		fmt.Fprintln(out, "FAILED:", stage+":", m)
		if err := write(file, event{Action: "fail", Package: m}); err != nil {
			return false, err
		}
	}
	return good, nil
}

// write adds an event to the file of a stage.
func write(file io.Writer, e event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return err
}

// missing says what a stage with a floor lacks. The files that its scripts wrote count.
func (s *stage) missing(dir string, least int) ([]string, error) {
	if least == 0 {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, s.name+"-*.json"))
	if err != nil {
		return nil, err
	}
	outer, empty := s.outer, s.empty
	for _, f := range files {
		part, err := read(f)
		if err != nil {
			return nil, err
		}
		outer, empty = outer+part.outer, append(empty, part.empty...)
	}
	var missing []string
	if outer < least {
		missing = append(missing, fmt.Sprintf("%d tests passed, at least %d must: tests are gone, or scripts/test.sh needs another floor", outer, least))
	}
	for _, p := range empty {
		missing = append(missing, p+": no test has a name that -run asks for")
	}
	return missing, nil
}

// read reads a file of events.
func read(file string) (*stage, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := newStage(strings.TrimSuffix(filepath.Base(file), ".json"))
	for line := range strings.Lines(string(text)) {
		s.line(strings.TrimSuffix(line, "\n"))
	}
	return s, nil
}

// packageTime is what the tests of a package took in a stage.
type packageTime struct {
	stage, name string
	seconds     float64
}

// longPackage is how many seconds a package takes that the summary names.
const longPackage = 20

// summary tells of all stages and reports whether they passed.
func summary(out io.Writer, dir, allow string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return false, err
	}
	allowed, err := patterns(allow)
	if err != nil {
		return false, err
	}
	passed, failed, skipped := 0, 0, 0
	reasons := map[string]int{}
	var failures, forbidden []string
	var long []packageTime
	for _, f := range files {
		s, err := read(f)
		if err != nil {
			return false, err
		}
		p, fl, sk := s.counts()
		passed, failed, skipped = passed+p, failed+fl, skipped+sk
		failures = append(failures, s.failed...)
		for p, seconds := range s.took {
			if seconds >= longPackage {
				long = append(long, packageTime{s.name, p, seconds})
			}
		}
		for _, skip := range s.skipped {
			reasons[skip.reason]++
			if allow != "" && !s.leftOut(skip) && !slices.ContainsFunc(allowed, func(r *regexp.Regexp) bool { return r.MatchString(skip.where + skip.reason) }) {
				forbidden = append(forbidden, skip.where+skip.reason)
			}
		}
	}
	if len(reasons) > 0 {
		fmt.Fprintln(out, "\nSkipped:")
		for _, why := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(out, "%6d  %s\n", reasons[why], why)
		}
	}
	if len(long) > 0 {
		slices.SortFunc(long, func(a, b packageTime) int {
			return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.stage+a.name, b.stage+b.name))
		})
		fmt.Fprintln(out, "\nSeconds, side by side, of the packages that took longest:")
		for _, p := range long[:min(len(long), 25)] {
			fmt.Fprintf(out, "%6.0f  %s %s\n", p.seconds, p.stage, p.name)
		}
	}
	for _, f := range forbidden {
		fmt.Fprintln(out, "FAILED: skipped without leave:", f)
	}
	for _, f := range failures {
		fmt.Fprintln(out, "FAILED:", f)
	}
	failed += len(forbidden)
	skipped -= len(forbidden)
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && passed > 0, nil
}

// form is that of a line that allows a skip: the stage, the package, the test and the
// reason, from the first character to the last.
var form = regexp.MustCompile(`^\^[^:]+: ringmaster/[^:]+: \(?(Test|Fuzz)[^:]+: NOT (CHECKED|APPLICABLE): [^ ].*\$$`)

// patterns reads the expressions of a file.
func patterns(file string) ([]*regexp.Regexp, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*regexp.Regexp
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if !form.MatchString(line) {
			return nil, fmt.Errorf("%s: %q is not of the form ^STAGE: PACKAGE: TEST: REASON$", file, line)
		}
		r, err := regexp.Compile(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, nil
}
