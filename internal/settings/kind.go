package settings

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"ringmaster/internal/units"
)

// kind is how a file writes the values of a type of flag, in the words of an error.
type kind string

const (
	boolean  kind = "true or false"
	whole    kind = "a whole number"
	number   kind = "a number"
	duration kind = `a duration such as "90s"`
	anyText  kind = "a string"
)

// elementOf returns the kind of a flag's values; for a flag that may be repeated, that of
// each.
func elementOf(f *pflag.Flag) kind {
	switch strings.TrimSuffix(strings.TrimSuffix(f.Value.Type(), "Slice"), "Array") {
	case "bool":
		return boolean
	case "duration":
		return duration
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		return whole
	case "float32", "float64":
		return number
	default:
		return anyText
	}
}

// argument returns the text for the flag's Set; false if v has another type.
func (k kind) argument(v any) (string, bool) {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v), k == boolean
	case int64:
		return strconv.FormatInt(v, 10), k == whole || k == number
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), k == number
	case string:
		return v, k == anyText || k == duration
	}
	return "", false
}

// value returns the TOML value of the flag's text.
func (k kind) value(text string) any {
	var v any
	err := strconv.ErrSyntax
	switch k {
	case boolean:
		v, err = strconv.ParseBool(text)
	case whole:
		v, err = strconv.ParseInt(text, 10, 64)
	case number:
		v, err = strconv.ParseFloat(text, 64)
	case duration:
		var d time.Duration
		d, err = time.ParseDuration(text)
		v = units.Duration(d)
	}
	if err == nil {
		return v
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}

// typeName names the type of a TOML value in an error. It does not show the value, which
// may be a key.
func typeName(v any) string {
	switch v.(type) {
	case bool:
		return "true or false"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	case toml.LocalDate, toml.LocalTime, toml.LocalDateTime:
		return "a date or time"
	default:
		return "a time"
	}
}
