package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
)

// API is a server that is examined through its API, and what it is compared with.
type API struct {
	URL, Key            string
	Against, AgainstKey string        // another server; empty: none
	Recorded            string        // file of a Record; empty: none
	Limit               time.Duration // for one request
	Options                           // Prompts are those of Recorded or Prompts()
}

// Ask examines the server by its API.
func (o *API) Ask(ctx context.Context) (*Report, *Record, error) {
	server, err := NewServer("url", o.URL, o.Key, o.Limit)
	if err != nil {
		return nil, nil, err
	}
	options := o.Options
	options.Prompts = Prompts()
	var other *Server
	if o.Against != "" {
		if other, err = NewServer("against", o.Against, o.AgainstKey, o.Limit); err != nil {
			return nil, nil, err
		}
		if err := other.Look(ctx); err != nil {
			return nil, nil, err
		}
	}
	var record *Record
	if o.Recorded != "" {
		if record, err = ReadRecord(o.Recorded); err != nil {
			return nil, nil, err
		}
		options.Prompts, options.Tokens = record.Prompts, record.Tokens
	}
	if err := server.Look(ctx); err != nil {
		return nil, nil, err
	}
	return Verify(ctx, server, other, record, options)
}

// JSON returns the report for a file.
func (r *Report) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

// JSON returns the record for a file.
func (r *Record) JSON() ([]byte, error) { return json.Marshal(r) }

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	for _, c := range r.Checks {
		if _, err := fmt.Fprintf(w, "%-11s  %-9s  %s\n", c.Verdict, c.Name, c.Detail); err != nil {
			return err
		}
	}
	of := cmp.Or(r.URL, r.Coordinator)
	if r.Fingerprint == "" {
		_, err := fmt.Fprintf(w, "%s: %s (%s)\n", r.Verdict, of, r.Model)
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s (%s, %s)\n", r.Verdict, of, r.Model, r.Fingerprint)
	return err
}

// mostRecord bounds a record, in bytes; its answers have at most 4096 tokens each.
const mostRecord = 64 << 20

// ReadRecord reads a file of --record.
func ReadRecord(path string) (*Record, error) {
	data, err := flags.ReadInput(path, mostRecord)
	if err != nil {
		return nil, usage.Errorf("--recorded: %w; expected what verify --record writes", err)
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil || len(r.Prompts) == 0 || len(r.Answers) != len(r.Prompts) || r.Tokens < 2 || r.Tokens > 4096 {
		return nil, usage.Errorf("%s is no record; expected what verify --record writes", path)
	}
	return r, nil
}
