package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"ringmaster/api"
	"ringmaster/internal/flags"
	"ringmaster/internal/trust"
)

// tlsOptions are the flags of TLS for HTTP.
type tlsOptions struct {
	cert, key string
}

func (o *tlsOptions) register(f *pflag.FlagSet) {
	flags.File(f, &o.cert, "tls-cert", "serve HTTPS with the certificate in this PEM `file`, with its chain; read again when it changes")
	flags.File(f, &o.key, "tls-key", "PEM `file` of the private key of --tls-cert")
}

// load reads the certificate; nil without one.
func (o *tlsOptions) load() (*api.Certificate, error) {
	switch {
	case o.cert == "" && o.key == "":
		return nil, nil
	case o.cert == "":
		return nil, fmt.Errorf("--tls-key %s needs --tls-cert, the file of its certificate", o.key)
	case o.key == "":
		return nil, fmt.Errorf("--tls-cert %s needs --tls-key, the file of its private key", o.cert)
	}
	c, err := api.LoadCertificate(o.cert, o.key, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	trust.WarnIfOthersMay(o.key, 0o007, "private key")
	return c, nil
}

// scheme is that of the server's addresses.
func (o *tlsOptions) scheme() string {
	if o.cert != "" {
		return "https"
	}
	return "http"
}
