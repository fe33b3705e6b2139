package traces

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// Options of a Sender. The environment variables of OpenTelemetry say where to send
// traces, and how many.
type Options struct {
	Version string // of the program
	Log     *slog.Logger
}

// targetOf returns the address that traces go to, "" for none. It rejects what the SDK would
// only log, or replace by another value.
func targetOf(getenv func(string) string) (string, error) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	name := prefix + "TRACES_ENDPOINT"
	at := getenv(name)
	if at == "" {
		name = prefix + "ENDPOINT"
		at = getenv(name)
	}
	disabled := strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none"
	if at == "" || disabled {
		return "", nil
	}
	u, err := url.Parse(strings.TrimSpace(at))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s is %q; expected the address of a collector, such as http://127.0.0.1:4318", name, withoutPassword(u, at))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" { // the exporter would leave them out
		return "", fmt.Errorf("%s has a user, a query or a fragment, which are not sent; give what the collector asks for in %sHEADERS", name, prefix)
	}
	for _, v := range []string{prefix + "TRACES_PROTOCOL", prefix + "PROTOCOL"} {
		switch p := getenv(v); p {
		case "", "http/protobuf", "http/json":
		default:
			return "", fmt.Errorf("%s is %q; expected http/protobuf or http/json: collectors take these on port 4318", v, p)
		}
	}
	return u.String(), nil
}

// withoutPassword returns an address for an error message; u is nil if it could not be
// parsed.
func withoutPassword(u *url.URL, at string) string {
	if u == nil {
		return excerpt(at)
	}
	return excerpt(u.Redacted())
}

// excerpt returns the beginning of a text from elsewhere.
func excerpt(s string) string {
	const most = 300
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
