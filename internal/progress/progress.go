// Package progress shows a person the progress of files: a bar on a terminal, a line now
// and then elsewhere.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
)

// IsTerminal reports whether what is written to w appears on a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := display(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Report shows the progress of files (pull.Reporter): a progress bar on a terminal, a
// line now and then elsewhere.
type Report struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	mu                 sync.Mutex
	bar                *progressbar.ProgressBar
	phase              string
	total, have, added int64
	begun, printed     time.Time
}

// New returns a report that is shown on w.
func New(w io.Writer) *Report {
	return &Report{w: w, terminal: IsTerminal(w), now: time.Now}
}

// display returns the writer that the bar is drawn on. The bar moves the cursor and shows
// no text of a peer.
func display(w io.Writer) io.Writer {
	if safe, ok := w.(*safetext.Writer); ok {
		return safe.Unwrap()
	}
	return w
}

// printEvery is the time between two lines without a terminal.
const printEvery = 30 * time.Second

// phaseNames maps the phases of pull and fanout to what the bar shows.
var phaseNames = map[string]string{"fetch": "fetching", "send": "sending", "check": "checking SHA-256"}

// Begin starts a phase of total bytes, done of them present already.
func (r *Report) Begin(phase string, total, done int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.total, r.have, r.added = phaseNames[phase], total, done, 0
	r.begun, r.printed = r.now(), r.now()
	if done > 0 {
		r.say(fmt.Sprintf("%s of %s already present", units.Bytes(done), units.Bytes(total)))
	}
	if r.terminal && total > done {
		// The bar counts only what is left, because bytes from an earlier run would
		// distort the rate.
		r.bar = progressbar.NewOptions64(total-done,
			progressbar.OptionSetWriter(display(r.w)), progressbar.OptionSetDescription(r.phase),
			progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionShowTotalBytes(true), progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth(), progressbar.OptionThrottle(200*time.Millisecond))
	}
}

// Add counts n more bytes of the phase; n is negative if bytes are fetched again.
func (r *Report) Add(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added += n
	if r.bar != nil {
		if err := r.bar.Set64(r.added); err != nil {
			r.bar = nil // a failing display does not stop the work
		}
		return
	}
	if now := r.now(); !r.terminal && now.Sub(r.printed) >= printEvery {
		r.printed = now
		r.say(r.line(now))
	}
}

// line returns the state of the phase: share, rate and time left.
func (r *Report) line(now time.Time) string {
	done, seconds := r.have+r.added, now.Sub(r.begun).Seconds()
	text := fmt.Sprintf("%s: %s of %s (%d%%)", r.phase, units.Bytes(max(done, 0)), units.Bytes(r.total), 100*done/max(r.total, 1))
	if r.added > 0 && seconds > 0 {
		rate := float64(r.added) / seconds
		left := time.Duration(float64(r.total-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %s/s, %v left", units.Bytes(int64(rate)), left.Round(time.Second))
	}
	return text
}

// End ends the phase.
func (r *Report) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bar != nil {
		fmt.Fprintln(r.w)
		r.bar = nil
	} else if !r.terminal && r.added > 0 {
		r.say(r.line(r.now()))
	}
}

// Say shows a line about the work, cut to 2000 bytes and safe for a terminal.
func (r *Report) Say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bar != nil {
		fmt.Fprintln(r.w)
	}
	r.say(line)
}

// maxSaid bounds a line about the work in bytes, because it may quote a server.
const maxSaid = 2000

func (r *Report) say(line string) { fmt.Fprintln(r.w, safetext.Line(line, maxSaid)) }
