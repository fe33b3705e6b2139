package profile

import (
	"time"

	"ringmaster/kernels"
)

// Switch is a backend that measures ops only while Measure is on. At other times ops go
// to the inner backend as they come, without a flush after each.
type Switch struct {
	kernels.Backend // the one that runs the ops now
	plain           kernels.Backend
	// Profile has what was measured.
	Profile *Backend
}

// NewSwitch returns a backend that computes with inner and closes it. It does
// not measure yet; times are taken from now.
func NewSwitch(inner kernels.Backend, now func() time.Time) *Switch {
	return &Switch{Backend: inner, plain: inner, Profile: Wrap(inner, now)}
}

// Measure switches measuring on or off. It must not be called between an op and
// its Flush.
func (s *Switch) Measure(on bool) {
	s.Backend = s.plain
	if on {
		s.Backend = s.Profile
	}
}

// Name is the name of the inner backend.
func (s *Switch) Name() string { return s.plain.Name() }

// RowsAgree asks the inner backend.
func (s *Switch) RowsAgree() bool { return kernels.RowsAgree(s.plain) }

// Packer is the inner backend's.
func (s *Switch) Packer() kernels.Packer { return kernels.PackerOf(s.plain) }

// Host is the inner backend's.
func (s *Switch) Host() kernels.Host { return kernels.HostOf(s.plain) }

// AllocHost is the inner backend's.
func (s *Switch) AllocHost(n int) ([]byte, error) { return kernels.AllocHost(s.plain, n) }

// Prepare is the inner backend's.
func (s *Switch) Prepare(u kernels.Uses) error { return kernels.Prepare(s.plain, u) }

// Hold is the inner backend's.
func (s *Switch) Hold(used func() ([]kernels.Span, error)) error { return kernels.Hold(s.plain, used) }
