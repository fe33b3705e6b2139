package api

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/internal/testenv"
)

// handClock is a clock that tests set, with the system's tickers.
type handClock struct {
	systemClock
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// writeCertificate writes a self-signed certificate for 127.0.0.1 and its key, and
// returns the certificate.
func writeCertificate(t *testing.T, cert, key, name string, until time.Time) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return parsed
}

// serveTLS serves the handler with the certificate of two files.
func serveTLS(t *testing.T, h http.Handler, c *Certificate, o ServerOptions) (s *Server, addr string, served chan error) {
	t.Helper()
	o.Certificate = c
	return listen(t, h, o)
}

// listen serves the handler at an address of this host until the test ends.
func listen(t *testing.T, h http.Handler, o ServerOptions) (s *Server, addr string, served chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s = NewServer(h, o)
	served = make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { _ = s.http.Close() })
	return s, l.Addr().String(), served
}

// trusting is a client that trusts certificates, with a connection for each request.
func trusting(certs ...*x509.Certificate) *http.Client {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

// TestTLS: requests and streams over TLS work; connections after a change get the new
// certificate; half of a change is not used; a client that does not speak TLS gets
// nothing.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	clock := &handClock{now: time.Now()}
	first := writeCertificate(t, cert, key, "first", clock.Now().Add(24*time.Hour))
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	loaded, err := LoadCertificate(cert, key, clock.Now, logger)
	require.NoError(t, err)
	s, addr, served := serveTLS(t, New(testConfig(answering("ok"))), loaded, ServerOptions{Log: logger})
	get := func(client *http.Client) (string, error) {
		resp, err := client.Post("https://"+addr+"/v1/chat/completions", "application/json", strings.NewReader(`{`+user+`,"stream":true}`))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, "HTTP/1.1", resp.Proto)
		require.Contains(t, string(body), "[DONE]")
		return resp.TLS.PeerCertificates[0].Subject.CommonName, nil
	}
	name, err := get(trusting(first))
	require.NoError(t, err)
	require.Equal(t, "first", name)

	old := testenv.ReadFile(t, key)
	second := writeCertificate(t, cert, key, "second", clock.Now().Add(48*time.Hour))
	mended := testenv.ReadFile(t, key)
	require.NoError(t, os.WriteFile(key, old, 0o600))
	clock.add(2 * time.Second)
	name, err = get(trusting(first, second))
	require.NoError(t, err)
	require.Equal(t, "first", name, "the key of the new certificate is not there yet")
	require.Equal(t, 0.0, gauge(t, s.Collectors(), "ringmaster_config_last_reload_successful"))
	require.NoError(t, os.WriteFile(key, mended, 0o600))
	clock.add(2 * time.Second)
	name, err = get(trusting(first, second))
	require.NoError(t, err)
	require.Equal(t, "second", name)
	require.Equal(t, 1.0, gauge(t, s.Collectors(), "ringmaster_config_last_reload_successful"))
	require.Equal(t, float64(second.NotAfter.Unix()), gauge(t, s.Collectors(), "ringmaster_tls_certificate_expiry_timestamp_seconds"))

	_, err = get(trusting(first))
	require.ErrorContains(t, err, "certificate")
	old11 := trusting(second)
	config := old11.Transport.(*http.Transport).TLSClientConfig
	config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, err = get(old11)
	require.ErrorContains(t, err, "protocol version")
	resp, err := http.Get("http://" + addr + "/healthz")
	require.NoError(t, err)
	require.Equal(t, 400, resp.StatusCode)
	_ = resp.Body.Close()
	require.NotContains(t, log.String(), "handshake error", "strangers must not fill the log")
	// A client sees the end of a handshake before the server has counted it.
	require.Eventually(t, func() bool {
		return gauge(t, s.Collectors(), "ringmaster_http_tls_handshake_errors_total") == 3
	}, 20*time.Second, time.Millisecond)

	end, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, s.Shutdown(end))
	require.NoError(t, <-served)
}

// TestTLSConnectionLimits: a connection that never finishes its handshake makes room
// like any other without a request, one with a request is not cut, and what is
// refused is closed at once. A shutdown ends a stream over TLS with an error event.
func TestTLSConnectionLimits(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	own := writeCertificate(t, cert, key, "own", time.Now().Add(time.Hour))
	loaded, err := LoadCertificate(cert, key, nil, nil)
	require.NoError(t, err)
	e := &fakeEngine{script: func(int, engine.Request) ([]act, error) {
		acts := answerActs(3, "a", "b")
		acts[1].wait = make(chan struct{}) // forever
		return acts, nil
	}}
	s, addr, served := serveTLS(t, New(testConfig(e)), loaded, ServerOptions{MaxConnections: 1, MaxPerAddress: 1, Log: slog.New(slog.DiscardHandler)})
	silent, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer silent.Close()

	resp, err := trusting(own).Post("https://"+addr+"/v1/chat/completions", "application/json", strings.NewReader(`{`+user+`,"stream":true}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, silent.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the silent connection made room")

	_, err = trusting(own).Get("https://" + addr + "/healthz")
	require.Error(t, err, "the only place has a request")

	now, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Shutdown(now), context.Canceled)
	require.NoError(t, <-served)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "shutting_down")
}

func TestCertificateErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := testenv.WriteFile(t, filepath.Join(dir, name), text)
		return path
	}
	cert, key, other := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "other.pem")
	writeCertificate(t, file("unused.pem", ""), other, "other", time.Now().Add(time.Hour))
	writeCertificate(t, cert, key, "past", time.Unix(1000, 0))
	for _, tt := range []struct{ cert, key, want string }{
		{filepath.Join(dir, "none.pem"), key, "none.pem: no such file"},
		{key, cert, "are the two files swapped?"},
		{file("empty.pem", ""), key, "empty.pem holds no certificate in PEM"},
		{cert, cert, "cert.pem holds no private key in PEM"},
		{cert, file("locked.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----"), "openssl pkey -in"},
		{cert, other, "private key does not match public key"},
		{file("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"), key, "broken.pem and"},
	} {
		_, err := LoadCertificate(tt.cert, tt.key, nil, nil)
		require.ErrorContains(t, err, tt.want)
	}
	var log bytes.Buffer
	_, err := LoadCertificate(cert, key, nil, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err, "the clock may be wrong")
	require.Contains(t, log.String(), "has expired")
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// gauge reads the one value of a metric.
func gauge(t *testing.T, collectors []prometheus.Collector, name string) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectors...)
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	require.Fail(t, "no metric "+name)
	return 0
}
