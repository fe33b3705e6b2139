package main

import (
	"errors"
	"slices"

	"ringmaster/kernels/cpu"
	"ringmaster/kernels/profile"
)

// stream is the rate of the memory that stands beside a decode. The zero value
// measures nothing.
type stream struct {
	from  *cpu.Stream
	err   error     // why there is none
	rates []float64 // bytes a second, of each pass
}

// openStream takes the buffer of a stream read, where one is wanted: the other
// ranks of a group may be on the same machine, and a GPU reads by itself.
func (b *bench) openStream() stream {
	if !b.stream || b.l.cpu == nil || b.l.group != nil {
		return stream{}
	}
	mem, known := systemMemory()
	if !known {
		return stream{err: errors.New("this system does not tell how much memory is free")}
	}
	b.notePeak()
	b.buffered = true
	from, err := b.l.cpu.NewStream(mem.available)
	return stream{from: from, err: err}
}

// read makes n passes.
func (s *stream) read(n int) {
	for range n {
		if s.from != nil {
			s.rates = append(s.rates, s.from.Read())
		}
	}
}

// report fills in the rates of m. The best pass stands for what the memory can
// do; the median tells how busy the machine was.
func (s *stream) report(m *measurement) {
	if s.err != nil {
		m.StreamError = s.err.Error()
	}
	if len(s.rates) > 0 {
		m.StreamGBs, m.StreamMedianGBs = slices.Max(s.rates)/1e9, median(s.rates)/1e9
	}
}

// close frees the buffer.
func (s *stream) close() {
	if s.from != nil {
		s.from.Close()
	}
}

// weightBytes is what ops read of the model's tensors.
func weightBytes(ops []profile.Op) int64 {
	var sum int64
	for _, o := range ops {
		sum += o.Weights
	}
	return sum
}

// notePeak takes the peak of the memory, as long as no stream read has had a
// buffer in it. The repetition before that needed as much as those after it.
func (b *bench) notePeak() {
	if !b.buffered {
		b.peakMiB = peakMiB()
	}
}

// memory fills in what the process holds now, and held at most.
func (b *bench) memory(m *measurement) {
	b.notePeak()
	m.PeakMiB = b.peakMiB
	m.FileMiB, m.OwnMiB = residentMiB()
}
