package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"ringmaster/internal/safetext"
)

// Remote asks other hosts for their facts over ssh, all at once.
type Remote struct {
	Run     func(ctx context.Context, name string, args ...string) (string, error)
	Command []string      // ssh with its options
	Program string        // on the other hosts
	Args    []string      // arguments of doctor there
	Limit   time.Duration // for each host
	Now     func() time.Time
}

// Bounds of a host's answer: bytes, and entries of each of its lists.
const (
	maxFacts = 1 << 20
	maxList  = 256
)

// maxNoise is how much of what is not JSON an error quotes, in bytes.
const maxNoise = 200

// Gather returns the facts of the hosts in their order, and findings about the hosts that
// could not be asked; all omits these.
func (r *Remote) Gather(ctx context.Context, hosts []string) (all []Facts, failed []Finding) {
	facts, errs := make([]Facts, len(hosts)), make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, name := range hosts {
		wg.Go(func() { facts[i], errs[i] = r.one(ctx, name) })
	}
	wg.Wait()
	for i, name := range hosts {
		if errs[i] == nil {
			all = append(all, facts[i])
			continue
		}
		failed = append(failed, Finding{Host: name, Check: "ssh", Severity: Error, Evidence: safetext.Line(errs[i].Error(), maxEvidence),
			Cure: fmt.Sprintf("make this work: %s %s %s --version; --program names the program on the hosts", strings.Join(r.Command, " "), name, r.Program)})
	}
	return all, failed
}

func (r *Remote) one(ctx context.Context, name string) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	line := []string{quote(r.Program), "doctor", "--facts"}
	for _, a := range r.Args {
		line = append(line, quote(a))
	}
	args := append(append([]string{}, r.Command[1:]...), name, strings.Join(line, " "))
	asked := r.Now()
	text, err := r.Run(ctx, r.Command[0], args...)
	took := r.Now().Sub(asked)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %v", r.Limit)
		}
		return Facts{}, err
	}
	h, err := parseFacts(text)
	if err != nil {
		return h, err
	}
	h.Host = name
	if h.Ahead = h.Clock.Sub(asked); h.Ahead > 0 {
		h.Ahead = max(0, h.Ahead-took) // the clock was read at some time during the call
	}
	return h, nil
}

// parseFacts reads the output of doctor --facts, and skips what a login shell may have
// printed before it.
func parseFacts(text string) (h Facts, err error) {
	if len(text) > maxFacts {
		return h, fmt.Errorf("the answer is not a report: it has more than %d bytes and begins with %q", maxFacts, safetext.Line(text[:maxNoise], maxNoise))
	}
	at := strings.Index("\n"+text, "\n{")
	if at < 0 {
		return h, fmt.Errorf("the answer is not a report: %q", safetext.Line(text, maxNoise))
	}
	if err := json.NewDecoder(strings.NewReader(text[at:])).Decode(&h); err != nil {
		return h, fmt.Errorf("the answer is not a report: %w", safetext.Error(err, maxNoise))
	}
	safetext.Strings(&h, maxEvidence)
	lists := []int{len(h.Levels), len(h.Addresses), len(h.Interfaces), len(h.Ports), len(h.Firewalls), len(h.Errors), len(h.RDMA.Devices), len(h.RDMA.Notes)}
	if v := h.Vulkan; v != nil {
		lists = append(lists, len(v.Cards), len(v.Devices))
		for i := range v.Devices {
			lists = append(lists, len(v.Devices[i].Heaps))
		}
	}
	for _, n := range lists {
		if n > maxList {
			return h, fmt.Errorf("the answer is not a report: a list has %d entries, at most %d are expected", n, maxList)
		}
	}
	if h.Version != FactsVersion {
		return h, errors.New("the program on that host has another version; install the same build on all hosts")
	}
	return h, nil
}

// quote quotes a word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
