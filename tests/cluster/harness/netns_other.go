//go:build unix && !linux

package harness

import (
	"context"
	"errors"
	"time"
)

var errNoNet = errors.New("network namespaces exist only on Linux")

// Net is a network of namespaces, which exist only on Linux.
type Net struct{}

// NetAvailable returns why network namespaces cannot be created here.
func NetAvailable() error { return errNoNet }

// NewNet fails.
func NewNet(int) (*Net, error) { return nil, errNoNet }

// Prefix and the methods below are never called, because NewNet fails.
func (*Net) Prefix() string                                 { panic(errNoNet) }
func (*Net) Addr(int) string                                { panic(errNoNet) }
func (*Net) Command(int, ...string) []string                { panic(errNoNet) }
func (*Net) Cut(int) error                                  { return errNoNet }
func (*Net) Restore(int) error                              { return errNoNet }
func (*Net) Partition(int, int) error                       { return errNoNet }
func (*Net) Heal(int, int) error                            { return errNoNet }
func (*Net) Down(int) error                                 { return errNoNet }
func (*Net) Up(int) error                                   { return errNoNet }
func (*Net) Slow(int, string) error                         { return errNoNet }
func (*Net) Delay(int, time.Duration) error                 { return errNoNet }
func (*Net) Fast(int) error                                 { return errNoNet }
func (*Net) Dialer(int) Dialer                              { panic(errNoNet) }
func (*Net) Listening(context.Context, int) (string, error) { return "", errNoNet }
func (*Net) Close() error                                   { return errNoNet }
