package bench

import (
	"errors"
	"slices"

	"ringmaster/internal/host"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/profile"
)

// bandwidthMeter measures the memory bandwidth to compare a decode with. The zero value
// measures nothing.
type bandwidthMeter struct {
	source *cpu.Stream
	err    error     // why nothing is measured
	rates  []float64 // bytes per second of each pass
}

// openBandwidth allocates the buffer of a bandwidth measurement if it is enabled and
// meaningful. It is not meaningful in a group, because other ranks may share the host's
// memory, and not on a GPU, because that reads memory without the threads.
func (b *bench) openBandwidth() bandwidthMeter {
	if !b.o.Stream || b.t.CPU == nil || b.t.Group != nil {
		return bandwidthMeter{}
	}
	mem, known := b.t.Memory()
	if !known {
		return bandwidthMeter{err: errors.New("the free memory of this system is unknown")}
	}
	b.updatePeak()
	b.buffered = true
	source, err := b.t.CPU.NewStream(mem.Available)
	return bandwidthMeter{source: source, err: err}
}

// read makes a pass over the buffer.
func (s *bandwidthMeter) read() {
	if s.source != nil {
		s.rates = append(s.rates, s.source.Read())
	}
}

// report fills in the bandwidth of m. The best pass shows what the memory can
// deliver; the median shows how busy the host was.
func (s *bandwidthMeter) report(m *Measurement) {
	if s.err != nil {
		m.StreamError = s.err.Error()
	}
	if len(s.rates) > 0 {
		m.StreamGBs, m.StreamMedianGBs = slices.Max(s.rates)/1e9, median(s.rates)/1e9
	}
}

// close frees the buffer.
func (s *bandwidthMeter) close() {
	if s.source != nil {
		s.source.Close()
	}
}

// weightBytes returns the bytes that ops read from the model's tensors.
func weightBytes(ops []profile.Op) int64 {
	var sum int64
	for _, o := range ops {
		sum += o.Weights
	}
	return sum
}

// updatePeak reads the peak memory, unless it already includes the buffer of a bandwidth
// measurement. The warm-up before that needs as much memory as the repetitions after it.
func (b *bench) updatePeak() {
	if !b.buffered {
		b.peakMiB = host.PeakMiB()
	}
}

// memory fills in the resident memory of the process: peak and current.
func (b *bench) memory(m *Measurement) {
	b.updatePeak()
	m.PeakMiB = b.peakMiB
	m.FileMiB, m.OwnMiB = host.ResidentMiB()
	m.HugeMiB = host.HugeFileMiB()
}
