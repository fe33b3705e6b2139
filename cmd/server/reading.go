package main

import "ringmaster/gguf"

// How long the ranks of an epoch need to read what is new to them.

// readRate is how fast this host reads the model's file, in bytes per second; 0 for the
// built-in model, which is in memory.
func (o *modelOptions) readRate() (int64, error) {
	if o.path == "" {
		return 0, nil
	}
	parts, err := gguf.Parts(o.path)
	if err != nil {
		return 0, err
	}
	return gguf.ReadRate(parts)
}
