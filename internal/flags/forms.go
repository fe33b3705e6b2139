package flags

import (
	"errors"
	"net"
	"net/url"

	"github.com/spf13/pflag"
)

// The syntax of addresses.
const (
	addressForm = "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"
	urlForm     = "an address such as http://127.0.0.1:8080"
)

// Address declares HOST:PORT. The empty text is allowed if the default is empty.
func Address(f *pflag.FlagSet, p *string, name, def, usage string) {
	Parsed(f, p, name, def, addressForm, checkAddress, usage)
}

// Addresses declares HOST:PORT; the flag may be repeated.
func Addresses(f *pflag.FlagSet, p *[]string, name, usage string) {
	ParsedList(f, p, name, false, addressForm, checkAddress, usage)
}

// URL declares the address of an HTTP server. The empty text is allowed if the default is
// empty.
func URL(f *pflag.FlagSet, p *string, name, def, usage string) {
	Parsed(f, p, name, def, urlForm, checkURL, usage)
}

var errForm = errors.New("not of the form")

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	n, err := net.LookupPort("tcp", port)
	return errors.Join(err, Formed(port != "" && n <= 65535))
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	return errors.Join(err, Formed(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""))
}

// Formed returns nil if ok, else the error of a flag's parser for a malformed text.
func Formed(ok bool) error {
	if !ok {
		return errForm
	}
	return nil
}
