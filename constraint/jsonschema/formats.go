package jsonschema

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	c "ringmaster/constraint"
)

// format is an enforced format. Draft 2020-12 names the standard of each.
type format struct {
	exact string // regular expression of the whole text
	// loose has fewer states than exact, for texts with a long length: it leaves out lengths
	// of labels, forms of addresses in brackets, when seconds may be leap seconds, and what
	// of a URI comes where; its numbers have an end. "": exact.
	loose    string
	constant string              // exact in the syntax of package regexp; "": exact
	valid    func(s string) bool // what constant leaves out; nil: nothing

	once sync.Once
	re   *regexp.Regexp // of constant
	mu   sync.Mutex
	made map[string]*c.Expr // by the form of characters
}

// Parts of the formats. What is ASCII in a standard is ASCII here.
const (
	date = `(?:(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))`
	fine = `(?:\.\d+)?` // of a second

	octet = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4  = octet + `(?:\.` + octet + `){3}`
	group = `[0-9A-Fa-f]{1,4}`

	letter    = `[A-Za-z0-9]`
	label     = letter + `(?:[A-Za-z0-9-]{0,61}` + letter + `)?`
	anyLabel  = letter + `(?:[A-Za-z0-9-]*` + letter + `)?`
	host      = label + `(?:\.` + label + `)*`
	anyHost   = anyLabel + `(?:\.` + anyLabel + `)*`
	atoms     = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	localPart = atoms + `(?:\.` + atoms + `)*`
	inQuotes  = `(?:[ !#-\[\]-~]|\\[ -~])`

	unreserved = `A-Za-z0-9._~-`
	delimiters = `!$&'()*+,;=`
	encoded    = `%[0-9A-Fa-f]{2}`
	inPath     = `(?:[:@` + delimiters + unreserved + `]|` + encoded + `)`
	inQuery    = `(?:[:@/?` + delimiters + unreserved + `]|` + encoded + `)*`
	segments   = `(?:/` + inPath + `*)*`
)

// clock is the time of RFC 3339. A leap second is the last of a day in UTC; its offsets
// are those of today's zones, which are whole quarters of an hour.
var clock = func() string {
	var leaps strings.Builder
	for minutes := 0; minutes < 24*60; minutes += 15 {
		// The last minute of a day in UTC, where clocks are ahead by so much.
		local := (23*60 + 59 + minutes) % (24 * 60)
		behind := (24*60 - minutes) % (24 * 60)
		fmt.Fprintf(&leaps, `|%02d:%02d:60%s(?:\+%02d:%02d|-%02d:%02d`, local/60, local%60, fine, minutes/60, minutes%60, behind/60, behind%60)
		if minutes == 0 {
			leaps.WriteString(`|[Zz]`)
		}
		leaps.WriteString(`)`)
	}
	return `(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d` + fine + `(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)` + leaps.String() + `)`
}()

// anyClock is a time that may have a leap second in any minute.
const anyClock = `(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,30})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)`

// ipv6 is an address of RFC 4291 in the grammar of RFC 3986.
var ipv6 = func() string {
	last := `(?:` + group + `:` + group + `|` + ipv4 + `)`
	list := []string{`(?:` + group + `:){6}` + last, `::(?:` + group + `:){5}` + last}
	for n := 1; n <= 7; n++ { // at most n groups before the gap
		before := fmt.Sprintf(`(?:(?:%s:){0,%d}%s)?::`, group, n-1, group)
		switch {
		case n <= 5:
			list = append(list, before+fmt.Sprintf(`(?:%s:){%d}`, group, 5-n)+last)
		case n == 6:
			list = append(list, before+group)
		default:
			list = append(list, before)
		}
	}
	return `(?:` + strings.Join(list, "|") + `)`
}()

// uri is an absolute URI of RFC 3986.
var uri = func() string {
	literal := `\[(?:` + ipv6 + `|[vV][0-9A-Fa-f]+\.[:` + delimiters + unreserved + `]+)\]`
	named := func(more string) string { return `(?:[` + more + delimiters + unreserved + `]|` + encoded + `)*` }
	authority := `(?:` + named(":") + `@)?(?:` + literal + `|` + named("") + `)(?::\d*)?`
	return `[A-Za-z][A-Za-z0-9+.-]*:(?://` + authority + segments + `|/(?:` + inPath + `+` + segments + `)?|` + inPath + `+` + segments + `|)(?:\?` + inQuery + `)?(?:#` + inQuery + `)?`
}()

// duration is a duration of RFC 3339, appendix A, which leaves out no unit in between.
var duration = func() string {
	const (
		minute = `\d+M(?:\d+S)?`
		clock  = `T(?:\d+H(?:` + minute + `)?|` + minute + `|\d+S)`
		month  = `\d+M(?:\d+D)?`
	)
	return `P(?:(?:\d+Y(?:` + month + `)?|` + month + `|\d+D)(?:` + clock + `)?|` + clock + `|\d+W)`
}()

// emailOf returns the addresses of RFC 5321 with local parts and domains of some forms.
func emailOf(local, quoted, domain, literal string) string {
	return `(?:` + local + `|"` + quoted + `")@(?:` + domain + `|\[` + literal + `\])`
}

const address = `(?:` + ipv4 + `|IPv6:`

// formats are the enforced formats.
var formats = map[string]*format{
	"date":      {exact: date},
	"time":      {exact: clock, loose: anyClock},
	"date-time": {exact: date + `[Tt]` + clock, loose: date + `[Tt]` + anyClock},
	"duration":  {exact: duration, loose: strings.ReplaceAll(duration, `\d+`, `\d{1,18}`)},
	"uuid":      {exact: `[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`},
	"ipv4":      {exact: ipv4},
	"ipv6":      {exact: ipv6},
	"uri":       {exact: uri, loose: `[A-Za-z][A-Za-z0-9+.-]{0,31}:[:@/?#%\[\]` + delimiters + unreserved + `]*`},
	"hostname":  {exact: host, loose: anyHost},
	"email": {
		exact:    emailOf(`(?=[^@]{1,64}@)`+localPart, inQuotes+`{0,62}`, host, address+ipv6+`)`),
		loose:    emailOf(localPart, inQuotes+`*`, anyHost, `[0-9A-Fa-fIPv:.]+`),
		constant: emailOf(localPart, inQuotes+`*`, host, address+ipv6+`)`),
		valid:    func(s string) bool { return strings.LastIndexByte(s, '@') <= 64 },
	},
}

// matches reports whether a text has the format.
func (f *format) matches(s string) bool {
	f.once.Do(func() { f.re = regexp.MustCompile(`^(?:` + cmp.Or(f.constant, f.exact) + `)$`) })
	return f.re.MatchString(s) && (f.valid == nil || f.valid(s))
}

// expr returns the grammar of the format in one of the forms of characters. It is made
// once for all schemas, so it costs no schema anything.
func (f *format) expr(char c.Characters, form string) (*c.Expr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.made[form]; e != nil {
		return e, nil
	}
	e, err := c.Intersect([]c.Condition{{Pattern: f.exact, Whole: true, Trusted: true}}, 0, -1, char, nil)
	if err != nil {
		return nil, err
	}
	if f.made == nil {
		f.made = map[string]*c.Expr{}
	}
	f.made[form] = c.Shared("a format", e)
	return f.made[form], nil
}

// sameAsFormat are patterns that libraries write for a format and that are too large for
// an automaton. The texts of the format all match them, except names of more than 253
// characters.
var sameAsFormat = map[string]string{
	`^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$`: "hostname", // zod
}

// countable is the longest length beside which an exact format may fit: trying longer ones
// would only take work.
const countable = 64

// text returns the grammar of a string without its quotes; form names the form of its
// characters, char.
func (k *compiler) text(r *rules, form string, char c.Characters, any *c.Expr) *c.Expr {
	patterns := r.patterns
	bounded := r.minLength > 0 || r.maxLength >= 0
	f := formats[r.format]
	if f != nil && len(patterns) == 1 && sameAsFormat[patterns[0]] == r.format {
		patterns = nil
	}
	var e *c.Expr
	var err error
	keyword := "pattern"
	switch {
	case f == nil && len(patterns) == 0:
		return c.Repeat(any, r.minLength, r.maxLength)
	case f != nil && len(patterns) == 0 && !bounded:
		keyword = "format"
		e, err = f.expr(char, form)
	case f == nil && len(patterns) == 1 && !bounded:
		e, err = k.regular(patterns[0], char, form)
	default:
		list := make([]c.Condition, 0, 1+len(patterns))
		for _, p := range patterns {
			list = append(list, c.Condition{Pattern: p})
		}
		if f == nil {
			e, err = k.intersection(list, r.minLength, r.maxLength, char, form)
			break
		}
		// The standard lets a format be a mere annotation, but neither a pattern nor a length.
		// So where these leave no room for the exact format, its loose form is enforced.
		forms := []string{f.exact}
		if f.loose != "" {
			forms = append(forms, f.loose)
			if max(r.minLength, r.maxLength) > countable {
				forms = forms[1:]
			}
		}
		for _, pattern := range forms {
			keyword = "format"
			all := append(slices.Clone(list), c.Condition{Pattern: pattern, Whole: true, Trusted: true})
			if e, err = k.intersection(all, r.minLength, r.maxLength, char, form); err == nil {
				break
			}
		}
	}
	if err != nil {
		k.cannot(r.at, keyword, "%v", err)
		return c.Repeat(any, r.minLength, r.maxLength)
	}
	return e
}
