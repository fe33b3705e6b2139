// Command report runs the stages of scripts/test.sh and sums them up.
//
//	report -dir D -stage NAME COMMAND...   runs a command that prints the output of go test -json
//	report -dir D -summary [-allow FILE]   tells what passed, failed and was skipped
//
// A stage shows one line for each package and the output of tests that failed;
// the events go to D/NAME.json. Scripts that run tests by themselves put more
// such files there. Lines that are no events are passed on; one that says NOT
// CHECKED counts as a skipped test of the stage.
//
// The summary names every reason for which a test was skipped. With -allow a
// reason that no line of FILE allows is a failure: each line is a regular
// expression for "STAGE: PACKAGE: TEST: REASON", and lines with # are comments.
// Its last line is "N passed, N failed, N skipped".
package main

import (
	"bufio"
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
)

func main() {
	dir := flag.String("dir", "", "folder of the events")
	stage := flag.String("stage", "", "name of the stage to run")
	sum := flag.Bool("summary", false, "sum up the stages that ran")
	allow := flag.String("allow", "", "file of the skips that are no failure")
	flag.Parse()
	good, err := false, error(nil)
	switch {
	case *dir == "" || *sum == (*stage != ""):
		err = fmt.Errorf("want -dir with either -stage or -summary")
	case *sum:
		good, err = summary(os.Stdout, *dir, *allow)
	default:
		good, err = run(os.Stdout, *dir, *stage, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

// run executes a stage and reports whether it passed.
func run(out io.Writer, dir, stage string, args []string) (bool, error) {
	if len(args) == 0 {
		return false, fmt.Errorf("stage %s: no command", stage)
	}
	file, err := os.Create(filepath.Join(dir, stage+".json"))
	if err != nil {
		return false, err
	}
	defer file.Close()
	cmd := exec.Command(args[0], args[1:]...)
	read, write, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return false, err
	}
	s := newStage(stage)
	lines := bufio.NewReader(read)
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
	if err != nil && failed == 0 {
		// The summary must not miss a command that fails without a failed test.
		e, _ := json.Marshal(event{Action: "fail", Package: stage})
		if _, err := file.Write(append(e, '\n')); err != nil {
			return false, err
		}
	}
	return err == nil && failed == 0, nil
}

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
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return false, err
		}
		s := newStage(strings.TrimSuffix(filepath.Base(f), ".json"))
		for line := range strings.Lines(string(text)) {
			s.line(strings.TrimSuffix(line, "\n"))
		}
		p, fl, sk := s.counts()
		passed, failed, skipped = passed+p, failed+fl, skipped+sk
		failures = append(failures, s.failed...)
		for _, skip := range s.skipped {
			reasons[skip.reason]++
			if allow != "" && !slices.ContainsFunc(allowed, func(r *regexp.Regexp) bool { return r.MatchString(skip.where + skip.reason) }) {
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
		r, err := regexp.Compile(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, nil
}
