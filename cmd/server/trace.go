package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/program"
	"ringmaster/internal/traces"
)

// traceOptions are the flags about traces.
type traceOptions struct{ endpoint, sample string }

func (o *traceOptions) register(f *pflag.FlagSet) {
	flags.Parsed(f, &o.endpoint, "otlp-endpoint", "", urlForm, checkURL, "`address` of an OpenTelemetry collector, such as http://127.0.0.1:4318, to which traces of requests are sent, without texts; default that of OTEL_EXPORTER_OTLP_ENDPOINT")
	flags.Parsed(f, &o.sample, "otlp-sample", "", sampleForm, checkSample, "`share` of the requests that are traced, from 0 to 1; default what OTEL_TRACES_SAMPLER says, or all")
}

// open prepares the sending of traces; nil if none are wanted.
func (o *traceOptions) open(ctx context.Context) (*traces.Sender, error) {
	options := traces.Options{Endpoint: o.endpoint, Version: program.Version()}
	if o.sample != "" {
		share, err := strconv.ParseFloat(o.sample, 64)
		if err != nil {
			return nil, fmt.Errorf("--otlp-sample is %q; expected a share from 0 to 1", o.sample)
		}
		options.Sample = &share
	}
	return traces.Open(ctx, options)
}
