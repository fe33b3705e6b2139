package server

import (
	"fmt"
	"strings"
	"unicode"

	"ringmaster/api"
	"ringmaster/api/dialect"
	"ringmaster/api/keys"
	"ringmaster/distributed/accept"
	"ringmaster/internal/trust"
	"ringmaster/internal/usage"
)

// filesBesides is how many files a server needs besides its clients' connections: for the
// model, the ranks, strangers on their ports, and a reserve.
const filesBesides = 32

// check refuses options with which no server can work.
func (o *Options) check() error {
	for _, name := range o.Names {
		if len(name) > dialect.MaxModelName {
			return usage.Errorf("--model-name has %d bytes; requests may name at most %d", len(name), dialect.MaxModelName)
		}
	}
	for i, key := range o.Keys.Given { // net/http trims the values of headers
		if key != strings.TrimSpace(key) || strings.ContainsFunc(key, unicode.IsControl) {
			return usage.Errorf("--api-key: key %d has space around it or control characters in it, so no request can send it", i+1)
		}
	}
	if files := accept.FileLimit(); o.Connections > 0 && o.Connections > files-filesBesides {
		return usage.Errorf("--max-connections is %d, and this process may open %d files and needs %d of them for other things; raise ulimit -n to %d",
			o.Connections, files, filesBesides, o.Connections+filesBesides)
	}
	return nil
}

// ring opens the API keys; nil: none is required.
func (o *Options) ring() (*keys.Ring, error) {
	if len(o.Keys.Given) == 0 && o.Keys.File == "" {
		return nil, nil
	}
	r, err := keys.Open(o.Keys)
	if err != nil {
		return nil, usage.Errorf("--api-keys: %w", err)
	}
	if o.Keys.File != "" {
		trust.WarnIfOthersMay(o.Keys.File, 0o002, "file of API keys")
	}
	return r, nil
}

// TLS are the files of a certificate and its private key; HTTP if they are empty.
type TLS struct {
	Cert, Key string
}

// load reads the certificate; nil without one.
func (t TLS) load() (*api.Certificate, error) {
	switch {
	case t.Cert == "" && t.Key == "":
		return nil, nil
	case t.Cert == "":
		return nil, fmt.Errorf("--tls-key %s needs --tls-cert, the file of its certificate", t.Key)
	case t.Key == "":
		return nil, fmt.Errorf("--tls-cert %s needs --tls-key, the file of its private key", t.Cert)
	}
	c, err := api.LoadCertificate(t.Cert, t.Key, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	trust.WarnIfOthersMay(t.Key, 0o007, "private key")
	return c, nil
}

// scheme is that of the server's addresses.
func (t TLS) scheme() string {
	if t.Cert != "" {
		return "https"
	}
	return "http"
}
