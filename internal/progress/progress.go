// Package progress shows files on their way to a person: a bar on a terminal, a line now and
// then elsewhere.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Report shows files on their way (pull.Reporter): a progress bar on a terminal, a line now and
// then elsewhere.
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

func New(w io.Writer) *Report {
	return &Report{w: w, terminal: isTerminal(display(w)), now: time.Now}
}

// display is where the bar is drawn, which moves the cursor and shows no text of a peer.
func display(w io.Writer) io.Writer {
	if safe, ok := w.(*safetext.Writer); ok {
		return safe.Unwrap()
	}
	return w
}

// printEvery is the time between two lines where there is no terminal.
const printEvery = 30 * time.Second

// phaseNames are what the bar calls the phases of pull and fanout.
var phaseNames = map[string]string{"fetch": "fetching", "send": "sending", "check": "checking SHA-256"}

func (r *Report) Begin(phase string, total, done int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.total, r.have, r.added = phaseNames[phase], total, done, 0
	r.begun, r.printed = r.now(), r.now()
	if done > 0 {
		r.say(fmt.Sprintf("%s of %s are there", units.Bytes(done), units.Bytes(total)))
	}
	if r.terminal && total > done {
		// Of what is left only: bytes that were there before would spoil the rate.
		r.bar = progressbar.NewOptions64(total-done,
			progressbar.OptionSetWriter(display(r.w)), progressbar.OptionSetDescription(r.phase),
			progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionShowTotalBytes(true), progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth(), progressbar.OptionThrottle(200*time.Millisecond))
	}
}

func (r *Report) Add(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added += n
	if r.bar != nil {
		if err := r.bar.Set64(r.added); err != nil {
			r.bar = nil // a display that fails does not stop the work
		}
		return
	}
	if now := r.now(); !r.terminal && now.Sub(r.printed) >= printEvery {
		r.printed = now
		r.say(r.line(now))
	}
}

// line is the state of the phase: share, rate and time left.
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

func (r *Report) Say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bar != nil {
		fmt.Fprintln(r.w)
	}
	r.say(line)
}

// maxSaid bounds a line about the work, which may quote a server, in bytes.
const maxSaid = 2000

func (r *Report) say(line string) { fmt.Fprintln(r.w, safetext.Line(line, maxSaid)) }
