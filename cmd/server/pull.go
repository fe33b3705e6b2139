package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"ringmaster/internal/flags"
	"ringmaster/internal/pull"
	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
)

// newPull builds the command that fetches model files.
func newPull() *cobra.Command {
	o := pull.Options{}
	cmd := &cobra.Command{
		Use:   "pull hf:OWNER/REPO[@REVISION][:QUANT] | https://HOST/FILE.gguf",
		Short: "Fetch a model from Hugging Face, a mirror or an address",
		Long: `Fetches the GGUF files of a model, all parts of a split one, and prints their
paths. Several ranges are fetched at once; size and SHA-256 are checked, and free
space before that. A pull that was stopped goes on where it was when the same
command is run again.

QUANT is the part of the names that tells the models of a repository apart, such
as Q4_K_M; without it, a repository with several is an error that lists them.
HF_TOKEN is the token for repositories that need one, HF_ENDPOINT the address of
a mirror.

Exit code 2: the command cannot work as it was given; 1: it failed, and the same
command may work later.`,
		Example: `  ringmaster pull hf:OWNER/REPO:Q4_K_M --dir /models
  ringmaster pull https://HOST/F-00001-of-00004.gguf`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: %d arguments: want one, such as hf:OWNER/REPO:Q4_K_M", pull.ErrInput, len(args))
			}
			return nil
		},
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Token, o.Endpoint = os.Getenv("HF_TOKEN"), os.Getenv("HF_ENDPOINT")
			if err := flags.CheckDir("dir", o.Dir); err != nil {
				return err
			}
			o.Report = newPullReport(cmd.ErrOrStderr())
			paths, err := pull.Pull(cmd.Context(), args[0], o)
			if err != nil && cmd.Context().Err() != nil {
				return errors.New("stopped; what was fetched is kept: run the same command again to go on")
			}
			if err != nil {
				return err
			}
			for _, p := range paths {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), p); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags.Out(cmd.Flags(), &o.Dir, "dir", ".", "`directory` for the files")
	flags.Int(cmd.Flags(), &o.Connections, "connections", pull.DefaultConnections, flags.Within(1, pull.MostConnections), "ranges of a file that are fetched at once")
	return cmd
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// pullReport shows files on their way: a progress bar on a terminal, a line now and
// then elsewhere.
type pullReport struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	mu                 sync.Mutex
	bar                *progressbar.ProgressBar
	phase              string
	total, have, added int64
	begun, printed     time.Time
}

func newPullReport(w io.Writer) *pullReport {
	return &pullReport{w: w, terminal: isTerminal(display(w)), now: time.Now}
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

func (r *pullReport) Begin(phase string, total, done int64) {
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

func (r *pullReport) Add(n int64) {
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
func (r *pullReport) line(now time.Time) string {
	done, seconds := r.have+r.added, now.Sub(r.begun).Seconds()
	text := fmt.Sprintf("%s: %s of %s (%d%%)", r.phase, units.Bytes(max(done, 0)), units.Bytes(r.total), 100*done/max(r.total, 1))
	if r.added > 0 && seconds > 0 {
		rate := float64(r.added) / seconds
		left := time.Duration(float64(r.total-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %s/s, %v left", units.Bytes(int64(rate)), left.Round(time.Second))
	}
	return text
}

func (r *pullReport) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bar != nil {
		fmt.Fprintln(r.w)
		r.bar = nil
	} else if !r.terminal && r.added > 0 {
		r.say(r.line(r.now()))
	}
}

func (r *pullReport) Say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bar != nil {
		fmt.Fprintln(r.w)
	}
	r.say(line)
}

// maxSaid bounds a line about the work, which may quote a server, in bytes.
const maxSaid = 2000

func (r *pullReport) say(line string) { fmt.Fprintln(r.w, safetext.Line(line, maxSaid)) }
