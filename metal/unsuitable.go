package metal

// UnsuitableError is the error of Open where the host has no GPU or system that the
// kernels can run on: another backend must do.
type UnsuitableError struct{ Reason string }

// Error says what is missing and what to do.
func (e *UnsuitableError) Error() string { return e.Reason }
