package traces

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// Options say where to send traces, and how many.
type Options struct {
	// Endpoint is the address of a collector, to which /v1/traces is added. "": that of
	// the variables OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
	// without which nothing is sent. The other variables of OTLP count in either case.
	Endpoint string
	// Sample is the share of the traces that are recorded, from 0 to 1, of those that no
	// other program has begun; nil: what OTEL_TRACES_SAMPLER says, or all.
	Sample  *float64
	Version string // of the program
	Log     *slog.Logger
}

// target is where traces go.
type target struct {
	wanted bool
	url    string // "": the SDK reads it from the environment
	shown  string
}

// target checks what the SDK would only log, or take another value for.
func (o Options) target(getenv func(string) string) (target, error) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	if o.Sample != nil && !(*o.Sample >= 0 && *o.Sample <= 1) {
		return target{}, fmt.Errorf("--otlp-sample is %v; expected a share from 0 to 1", *o.Sample)
	}
	at, name := o.Endpoint, "--otlp-endpoint"
	ofSignal := getenv(prefix + "TRACES_ENDPOINT")
	switch {
	case at != "":
	case ofSignal != "":
		at, name = ofSignal, prefix+"TRACES_ENDPOINT"
	default:
		at, name = getenv(prefix+"ENDPOINT"), prefix+"ENDPOINT"
	}
	disabled := strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none"
	if at == "" || disabled && o.Endpoint == "" {
		return target{}, nil
	}
	u, err := url.Parse(strings.TrimSpace(at))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return target{}, fmt.Errorf("%s is %q; expected the address of a collector, such as http://127.0.0.1:4318", name, withoutPassword(u, at))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" { // which the exporter would leave out
		return target{}, fmt.Errorf("%s has a user, a query or a fragment, which are not sent; give what the collector asks for in %sHEADERS", name, prefix)
	}
	for _, v := range []string{prefix + "TRACES_PROTOCOL", prefix + "PROTOCOL"} {
		switch p := getenv(v); p {
		case "", "http/protobuf", "http/json":
		default:
			return target{}, fmt.Errorf("%s is %q; expected http/protobuf or http/json: collectors take these on port 4318", v, p)
		}
	}
	t := target{wanted: true, shown: u.String()}
	if o.Endpoint != "" {
		t.url = u.JoinPath("v1", "traces").String()
	}
	return t, nil
}

// withoutPassword is an address for an error message; u is nil if it could not be read.
func withoutPassword(u *url.URL, at string) string {
	if u == nil {
		return excerpt(at)
	}
	return excerpt(u.Redacted())
}

// excerpt is the beginning of a text from elsewhere.
func excerpt(s string) string {
	const most = 300
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
