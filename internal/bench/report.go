package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ringmaster/gguf"
	"ringmaster/internal/program"
	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
	"ringmaster/kernels/profile"
)

// GPU is the backend of a GPU, for a report.
type GPU interface {
	Info() gpu.Info
	Counts() gpu.Counts
	DeviceTime() (time.Duration, bool)
	Prepare(u kernels.Uses) error
	CanCompute(t gguf.Type) bool
	Pipelines() int
	WeightBuffers() (held, own int)
}

// onDevice is what the steps of a measurement asked of the GPU, without a profile.
type onDevice struct {
	counts gpu.Counts
	time   time.Duration // by the GPU's clock
	known  bool          // time
}

// since is what was asked since o.
func (d onDevice) since(o onDevice) onDevice {
	return onDevice{d.counts.Minus(o.counts), d.time - o.time, d.known}
}

// plus is the sum of both.
func (d onDevice) plus(o onDevice) onDevice {
	return onDevice{d.counts.Plus(o.counts), d.time + o.time, o.known}
}

// onDevice is what has been asked of the GPU so far.
func (b *bench) onDevice() (d onDevice) {
	if b.t.GPU != nil {
		d.counts = b.t.GPU.Counts()
		d.time, d.known = b.t.GPU.DeviceTime()
	}
	return d
}

// report writes the file of Options.Report, completely or not at all. It names no host and no
// path, so that it can be shown to anyone.
func (b *bench) report(all []*Measurement) error {
	fail := func(err error) error { return fmt.Errorf("--report %s: %w", b.o.Report, err) }
	f, err := os.CreateTemp(filepath.Dir(b.o.Report), filepath.Base(b.o.Report)+".*")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = errors.Join(b.writeReport(f, all), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), b.o.Report)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

func (b *bench) writeReport(w io.Writer, all []*Measurement) error {
	r := reporter{w: w, b: b, mac: macOf(b.deviceName(), b.cores), ranks: max(1, len(all[0].Ranks))}
	r.line("# Ringmaster speed report\n")
	r.line("Made by `ringmaster bench --report`. It has no host names and no paths: attach it to an issue.\n")
	r.about()
	r.speeds(all)
	for _, m := range all {
		r.steps(m)
	}
	r.types()
	return r.err
}

// deviceName is that of the GPU or of the kernels of the CPU.
func (b *bench) deviceName() string {
	if b.t.GPU != nil {
		return b.t.GPU.Info().Name
	}
	return b.t.Kernels
}

// reporter writes a report.
type reporter struct {
	w     io.Writer
	b     *bench
	mac   *mac
	ranks int
	err   error
}

func (r *reporter) line(format string, a ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, format+"\n", a...)
	}
}

// row is a row of a table. Cells cannot end it.
func (r *reporter) row(cells ...string) {
	for i := range cells {
		cells[i] = strings.NewReplacer("|", "/", "\n", " ").Replace(safetext.Line(cells[i], safetext.Evidence))
	}
	r.line("| %s |", strings.Join(cells, " | "))
}

// table begins a table.
func (r *reporter) table(heads ...string) {
	r.line("")
	r.row(heads...)
	r.line("|%s", strings.Repeat(" --- |", len(heads)))
}

// about says what was measured on what.
func (r *reporter) about() {
	t, info := &r.b.t, r.b.t.Model.Info()
	r.line("## What was measured")
	r.table("", "")
	r.row("program", program.Version()+" for "+program.Platform())
	if commit := program.CleanCommit(); commit != "" {
		r.row("commit", commit)
	}
	r.row("kernels and system", t.Kernels)
	if t.GPU != nil {
		i := t.GPU.Info()
		r.row("device", i.Name)
		if r.b.cores > 0 {
			r.row("cores of the GPU", fmt.Sprint(r.b.cores))
		}
		r.row("memory that the GPU may use", units.Bytes(int64(i.WorkingSet)))
		r.row("largest buffer", units.Bytes(int64(i.MaxBuffer)))
		r.row("threadgroup memory", units.Bytes(int64(i.SharedMax)))
		r.row("pipelines made", fmt.Sprint(t.GPU.Pipelines()))
		held, own := t.GPU.WeightBuffers()
		r.row("buffers of weights", fmt.Sprintf("%d, and %d of single weights", held, own))
	} else {
		r.row("threads", fmt.Sprint(t.Threads))
	}
	if m, known := t.Memory(); known {
		r.row("memory for the model", units.Bytes(m.Total)+", "+units.Bytes(m.Available)+" free")
	}
	r.row("ranks", fmt.Sprint(r.ranks))
	r.row("model", fmt.Sprintf("%s, %s, vocabulary of %d", info.Architecture, units.Count(info.Layers, "layer"), info.Vocab))
	r.row("context, tokens of a step", fmt.Sprintf("%d, %d", info.ContextLength, info.MaxTokens))
	r.row("expectation", r.chip())
}

// chip says which chip's expectation is compared.
func (r *reporter) chip() string {
	if r.mac == nil {
		return "no expectation for this device"
	}
	return "of an " + r.mac.name + " (" + sourceOf + ")"
}

// flash reports whether the model is the one that speeds are expected of: V4 Flash with routed
// experts of two bits.
func (r *reporter) flash(m *Measurement) bool {
	info := r.b.t.Model.Info()
	return info.Architecture == "deepseek4" && info.Layers == 43 &&
		slices.ContainsFunc(m.profiled, func(o profile.Op) bool { return strings.HasPrefix(o.Name, "Expert") && strings.Contains(o.Name, "IQ2") })
}

// speeds are the tokens a second.
func (r *reporter) speeds(all []*Measurement) {
	r.line("\n## Speed")
	r.table("what", "after", "tokens a second (median of the repetitions)", "slowest to fastest", "expected")
	for _, m := range all {
		tokens, e := float64(m.N*m.Sequences), expectation{source: sourceOf}
		if r.mac != nil && m.Sequences == 1 && m.Drafts == 0 && r.flash(m) {
			switch {
			case r.ranks > 2:
			case r.ranks == 2 && m.What == "decode":
				e.span = r.mac.two
			case r.ranks == 2:
			case m.What == "decode":
				e.span = r.mac.decode
			default:
				e.span = r.mac.prefill
			}
		}
		rate := tokens / median(m.Seconds)
		number := func(v float64) string { return fmt.Sprintf("%.4g", v) }
		r.row(m.title(), fmt.Sprint(m.Depth), fmt.Sprintf("%.2f", rate),
			fmt.Sprintf("%.2f to %.2f", tokens/slices.Max(m.Seconds), tokens/slices.Min(m.Seconds)), e.text(rate, number))
	}
}

// title says what a measurement ran.
func (m *Measurement) title() string {
	text := fmt.Sprintf("%s of %s", m.What, units.Count(m.N, "token"))
	if m.Sequences > 1 {
		text += fmt.Sprintf(" of %d sequences", m.Sequences)
	}
	if m.Drafts > 0 {
		text += ", " + units.Count(m.Drafts, "draft")
	}
	if m.Activations > 0 {
		text += fmt.Sprintf(", %d-bit activations", m.Activations)
	}
	return text
}
