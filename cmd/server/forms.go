package main

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"ringmaster/api/keys"
	"ringmaster/internal/network"
	"ringmaster/internal/simulate"
	"ringmaster/internal/units"
	"ringmaster/model/synthetic"
)

// What flags with one of a few words take.
var (
	reduceWords  = []string{"sum", "exact"}
	backendWords = []string{"auto", "cpu", "metal"}
	simdWords    = []string{"auto", "portable", "avx2", "avx512", "amx", "neon"}
	encryptWords = []string{encryptOn, encryptOff, encryptTCPOnly}
)

// mostRanks is the most ranks of a group.
const mostRanks = 8

// mostThreads is the most of --threads, far above any host.
const mostThreads = 4096

// mostBody bounds flags about bodies of requests.
const mostBody = 1 << 40

// How flags are written that are parsed, for errors.
const (
	addressForm   = "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"
	portsForm     = "a port or a range of ports such as 7701 or 7701-7708"
	sizeForm      = "a size such as 20GiB"
	memoryForm    = sizeForm + ", or unlimited"
	shareForm     = "experts, all or auto, also with shares such as all:2,1,1 or experts:memory"
	planShareForm = "experts or all, also with shares such as all:2,1,1 or experts:memory"
	onLossForm    = "continue, continue:N with the fewest ranks, wait or fail"
	urlForm       = "an address such as http://127.0.0.1:8080"
	microForm     = "auto, never or a number of tokens from 2 on"
	overrideForm  = "KEY=TYPE:VALUE with TYPE int, float, bool or str"
	fieldForm     = "a field and its value, such as temperature=0.7"
	requestsForm  = "a limit such as 60/minute: per second, minute, hour or day"
	tokensForm    = "a limit of 1000 or more such as 1000000/day: per second, minute, hour or day"
	expiryForm    = "a date such as 2027-01-31, which ends in UTC, or a time such as 2027-01-31T12:00:00Z"
	expertsForm   = "a type of weights, such as q4_k, q8_0 or iq2_xxs"
	decodeForm    = "SEQUENCES=TOKENS, such as 8=60"
)

var errForm = errors.New("not of the form")

func formed(ok bool) error {
	if !ok {
		return errForm
	}
	return nil
}

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	n, err := net.LookupPort("tcp", port)
	return errors.Join(err, formed(port != "" && n <= 65535))
}

func checkPorts(s string) error {
	_, err := network.ParsePorts(s)
	return err
}

func checkSize(s string) error {
	_, err := units.ParseBytes(s)
	return errors.Join(err, formed(s != ""))
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	return errors.Join(err, formed(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""))
}

func checkOverride(s string) error {
	_, typed, ok := strings.Cut(s, "=")
	kind, _, ok2 := strings.Cut(typed, ":")
	return formed(ok && ok2 && (kind == "int" || kind == "float" || kind == "bool" || kind == "str"))
}

func checkField(s string) error {
	name, _, ok := strings.Cut(s, "=")
	return formed(ok && name != "")
}

func checkRequests(s string) error {
	_, err := keys.Requests(s)
	return err
}

func checkTokens(s string) error {
	_, err := keys.Tokens(s)
	return err
}

func checkExpiry(s string) error {
	_, err := keys.ParseExpiry(s)
	return err
}

func checkExperts(s string) error { return new(synthetic.Config).SetExperts(s) }

func checkDecode(s string) error {
	_, err := parseDecode(s)
	return err
}

// parseDecode reads a rate of decoding by the number of sequences.
func parseDecode(s string) (simulate.Rate, error) {
	number, rate, ok := strings.Cut(s, "=")
	n, err := strconv.Atoi(number)
	x, err2 := strconv.ParseFloat(rate, 64)
	return simulate.Rate{Sequences: n, PerSecond: x}, errors.Join(err, err2, formed(ok && n > 0 && x > 0 && x <= 1e9))
}
