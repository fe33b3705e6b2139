//go:build !linux

package tcp

// pin and unpin do nothing on this system.
func pin(int) error   { return nil }
func unpin(int) error { return nil }
