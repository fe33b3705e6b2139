// Package keys holds the API keys of a server: their file, their limits, and how new
// ones are made. It knows nothing of HTTP.
//
// A file has a line for each key: its name, the SHA-256 of the key in hexadecimal,
// and what it may do.
//
//	# comment
//	alice  sha256:9f86d081…  requests=60/minute tokens=1000000/day expires=2027-01-31
//
// Open reads the keys, Ring.Find looks one up, and the Holder that it returns counts the
// key's requests and tokens.
//
// New makes keys of 256 random bits, so that a plain hash protects them as well as a slow
// one (bcrypt, Argon2) would. A slow hash only helps against guessing likely passwords,
// and a random key is never likely. It would cost each request tens of milliseconds of a
// processor, and strangers could cause that work.
package keys

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// MostKeys limits the keys of a file, because each request is compared with all of
	// them.
	MostKeys = 10_000
	// leastTokens is the least limit of tokens, because below it a single request would
	// use up days.
	leastTokens = 1000
	mostPer     = 1 << 40 // requests or tokens in a period
	// MostWeight is the greatest weight of a key, as of a tenant of the engine.
	MostWeight = 1000
	shared     = "shared" // the one value of cache=
	prefix     = "rm-"    // lets scanners for leaked secrets recognise keys
)

// Key is a line of the file.
type Key struct {
	Name     string
	Hash     [sha256.Size]byte // of the key
	Requests Limit
	Tokens   Limit     // of prompts and answers
	Expires  time.Time // zero: never
	Weight   int       // share in the tokens of the steps, to those of other keys; 0 is 1
	Shared   bool      // it shares the prefix cache with the other keys that do
}

// Limit is how much of something a key may use. A key may use a whole period's amount at
// once; what it has used comes back evenly.
type Limit struct {
	N   int64 // 0: no limit
	Per time.Duration
}

// Hash returns the hash of a key.
func Hash(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

// New returns a key of 256 random bits.
func New() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Line returns the line of a key in the file, with its line end.
func (k *Key) Line() string {
	line := k.Name + " sha256:" + hex.EncodeToString(k.Hash[:])
	if k.Requests.N > 0 {
		line += " requests=" + k.Requests.String()
	}
	if k.Tokens.N > 0 {
		line += " tokens=" + k.Tokens.String()
	}
	if !k.Expires.IsZero() {
		line += " expires=" + k.Expires.UTC().Format(time.RFC3339)
	}
	if k.Weight > 1 {
		line += " weight=" + strconv.Itoa(k.Weight)
	}
	if k.Shared {
		line += " cache=" + shared
	}
	return line + "\n"
}

// periods maps the names of periods to their lengths.
var periods = []struct {
	name string
	d    time.Duration
}{{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour}}

// String returns the limit as the file has it, such as "60/minute".
func (l Limit) String() string {
	for _, p := range periods {
		if p.d == l.Per {
			return strconv.FormatInt(l.N, 10) + "/" + p.name
		}
	}
	return fmt.Sprintf("%d/%s", l.N, l.Per)
}

// ParseLimit reads a limit such as "60/minute"; least is the least number.
func ParseLimit(text string, least int64) (Limit, error) {
	number, period, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(number, 10, 64)
	if err == nil && n >= least && n <= mostPer {
		for _, p := range periods {
			if p.name == period {
				return Limit{n, p.d}, nil
			}
		}
	}
	return Limit{}, fmt.Errorf("%.40q; expected NUMBER/PERIOD, such as %d/minute: a number from %d to %d, and second, minute, hour or day", text, max(60, least), least, int64(mostPer))
}

// Requests reads a limit of requests.
func Requests(text string) (Limit, error) { return ParseLimit(text, 1) }

// Tokens reads a limit of tokens, which is at least 1000.
func Tokens(text string) (Limit, error) { return ParseLimit(text, leastTokens) }

// How limits and the end of a key are written.
const (
	RequestsForm = "a limit such as 60/minute: per second, minute, hour or day"
	TokensForm   = "a limit of 1000 or more such as 1000000/day: per second, minute, hour or day"
	ExpiryForm   = "a date such as 2027-01-31, which ends in UTC, or a time such as 2027-01-31T12:00:00Z"
)

// ParseExpiry reads a time with its zone, or a date; a date means its end.
func ParseExpiry(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q; expected %s", text, ExpiryForm)
	}
	return at, nil
}

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// CheckName returns an error if a key cannot have this name.
func CheckName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("the name of a key has 1 to 64 letters, digits and . _ @ -, and begins with a letter or digit")
	}
	return nil
}

// Parse reads a file. Its errors name the line and never quote it, because somebody may
// have written the key itself there.
func Parse(data []byte) ([]Key, error) {
	var list []Key
	names, hashes := map[string]int{}, map[[sha256.Size]byte]int{}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		// Half a line of a file that is being written could be a key without its limits.
		return nil, errors.New("the last line has no line end: is the file complete?")
	}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		k, err := parseLine(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if before := names[k.Name]; before > 0 {
			return nil, fmt.Errorf("line %d: the name is already on line %d", number, before)
		}
		if before := hashes[k.Hash]; before > 0 {
			return nil, fmt.Errorf("line %d: the key is already on line %d", number, before)
		}
		if len(list) == MostKeys {
			return nil, fmt.Errorf("line %d: more than %d keys", number, MostKeys)
		}
		names[k.Name], hashes[k.Hash] = number, number
		list = append(list, k)
	}
	return list, nil
}

// hashes returns the hashes in the lines of a file, whatever else the lines have.
func hashes(data []byte) map[[sha256.Size]byte]bool {
	found := map[[sha256.Size]byte]bool{}
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if h, ok := parseHash(fields[1]); ok {
			found[h] = true
		}
	}
	return found
}

// parseHash reads the second field of a line.
func parseHash(field string) (h [sha256.Size]byte, ok bool) {
	text, ok := strings.CutPrefix(field, "sha256:")
	if !ok || len(text) != 2*sha256.Size {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(text))
	return h, err == nil
}

// parseLine reads the fields of a line.
func parseLine(fields []string) (k Key, err error) {
	if err := CheckName(fields[0]); err != nil {
		return k, err
	}
	k.Name = fields[0]
	if len(fields) < 2 {
		return k, errors.New("no hash after the name; make lines with: ringmaster key new")
	}
	var ok bool
	if k.Hash, ok = parseHash(fields[1]); !ok {
		return k, errors.New("expected sha256: and 64 hexadecimal digits after the name (the hash of the key, not the key); make lines with: ringmaster key new")
	}
	if k.Hash == Hash("") {
		return k, errors.New("this is the hash of an empty key, perhaps from an unset variable")
	}
	given := map[string]bool{}
	for _, f := range fields[2:] {
		field, value, _ := strings.Cut(f, "=")
		if given[field] {
			return k, fmt.Errorf("%s= twice", field)
		}
		switch field {
		case "requests":
			k.Requests, err = Requests(value)
		case "tokens":
			k.Tokens, err = Tokens(value)
		case "expires":
			k.Expires, err = ParseExpiry(value)
		case "weight":
			if k.Weight, err = strconv.Atoi(value); err != nil || k.Weight < 1 || k.Weight > MostWeight {
				err = fmt.Errorf("%.40q; expected a whole number from 1 to %d", value, MostWeight)
			}
		case "cache":
			if k.Shared = value == shared; !k.Shared {
				err = fmt.Errorf("%.40q; expected %s", value, shared)
			}
		default:
			return k, errors.New("unknown field; only requests=, tokens=, expires=, weight= and cache= are allowed")
		}
		if err != nil {
			return k, fmt.Errorf("%s is %w", field, err)
		}
		given[field] = true
	}
	return k, nil
}
