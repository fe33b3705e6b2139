package api

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringmaster/internal/reload"
)

// Certificate is the server's certificate and key. It follows its files, so that new
// connections use a renewed certificate.
type Certificate struct {
	value *reload.Value[*tls.Certificate]
}

// LoadCertificate reads a certificate with its chain, and its private key, both in PEM. A
// nil now means the system's clock. Errors name the file and what is wrong with it. An
// expired certificate is logged and used, because the clock may be wrong.
func LoadCertificate(cert, key string, now func() time.Time, log *slog.Logger) (*Certificate, error) {
	if now == nil {
		now = time.Now
	}
	log = cmp.Or(log, slog.Default())
	parse := func(contents [][]byte) (*tls.Certificate, error) {
		c, err := parseCertificate(cert, key, contents)
		if err != nil {
			return nil, err
		}
		switch leaf := c.Leaf; {
		case now().After(leaf.NotAfter):
			log.Warn("the TLS certificate has expired, so clients will refuse it", "file", cert, "not_after", leaf.NotAfter)
		case now().Before(leaf.NotBefore):
			log.Warn("the TLS certificate is not valid yet, so clients will refuse it", "file", cert, "not_before", leaf.NotBefore)
		}
		return c, nil
	}
	v, err := reload.New(reload.Options[*tls.Certificate]{Paths: []string{cert, key}, Parse: parse, Now: now, Log: log})
	if err != nil {
		return nil, err
	}
	return &Certificate{v}, nil
}

// parseCertificate parses the contents of the two files.
func parseCertificate(cert, key string, contents [][]byte) (*tls.Certificate, error) {
	has := func(file int, mark string) bool { return bytes.Contains(contents[file], []byte(mark)) }
	switch {
	case !has(0, "BEGIN CERTIFICATE-----") && has(0, "PRIVATE KEY-----"):
		return nil, fmt.Errorf("%s holds a private key and no certificate: are the two files swapped?", cert)
	case !has(0, "BEGIN CERTIFICATE-----"):
		return nil, fmt.Errorf("%s holds no certificate in PEM", cert)
	case has(1, "BEGIN ENCRYPTED PRIVATE KEY"):
		return nil, fmt.Errorf("%s: the key is encrypted; write it without a passphrase, readable by the server only: openssl pkey -in %s -out plain.pem", key, key)
	case !has(1, "PRIVATE KEY-----"):
		return nil, fmt.Errorf("%s holds no private key in PEM", key)
	}
	c, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s are not a certificate and its key: %w", cert, key, err)
	}
	return &c, nil
}

// Config returns the configuration of TLS for a server: TLS 1.2 and 1.3, HTTP/1.1 only,
// because a connection with HTTP/2 could carry hundreds of requests and the limits of
// connections would bound nothing.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.value.Get(), nil },
	}
}

// Collectors are the metrics of the certificate.
func (c *Certificate) Collectors() []prometheus.Collector {
	leaf := func() *x509.Certificate { return c.value.Get().Leaf }
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringmaster_tls_certificate_expiry_timestamp_seconds",
			Help: "When the TLS certificate in use expires, in seconds since 1970."}, func() float64 { return float64(leaf().NotAfter.Unix()) }),
		reloaded("tls", c.value.Failed),
	}
}

// reloaded returns the metric of files that are read again when they change.
func reloaded(config string, failed func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringmaster_config_last_reload_successful",
		Help: "1 if the contents of the files are in use, 0 if their last change was not valid.", ConstLabels: prometheus.Labels{"config": config}},
		func() float64 {
			if failed() {
				return 0
			}
			return 1
		})
}
