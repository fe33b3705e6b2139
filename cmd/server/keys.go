package main

import (
	"fmt"
	"strings"
	"unicode"

	"ringmaster/api/keys"
	"ringmaster/internal/trust"
	"ringmaster/internal/usage"
)

// checkKeys refuses API keys that no request could carry: net/http trims header
// values. The error does not contain the key.
func (o *serveOptions) checkKeys() error {
	for i, key := range o.keys {
		if key != strings.TrimSpace(key) || strings.ContainsFunc(key, unicode.IsControl) {
			return fmt.Errorf("--api-key: key %d has space around it or control characters in it, so no request can send it", i+1)
		}
	}
	return nil
}

// ring opens the API keys; nil: none is required.
func (o *serveOptions) ring() (*keys.Ring, error) {
	if len(o.keys) == 0 && o.keyFile == "" {
		return nil, nil
	}
	r, err := keys.Open(keys.Options{Given: o.keys, File: o.keyFile})
	if err != nil {
		return nil, usage.Errorf("--api-keys: %w", err)
	}
	if o.keyFile != "" {
		trust.WarnIfOthersMay(o.keyFile, 0o002, "file of API keys")
	}
	return r, nil
}
