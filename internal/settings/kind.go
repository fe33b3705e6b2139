package settings

import (
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
)

// kind says how a file writes the values of a type of flag.
type kind struct {
	name string // for errors
	// text returns the argument for the flag's Set; false if v has another type.
	text func(v any) (string, bool)
	// parse returns the TOML value of the flag's text; false for a string.
	parse func(text string) (any, bool)
}

var kinds = map[string]kind{
	"bool":     {"true or false", boolText, parseBool},
	"int":      {"a whole number", intText, parseInt},
	"float":    {"a number", floatText, parseFloat},
	"duration": {`a duration such as "90s"`, stringText, parseNothing},
	"string":   {"a string", stringText, parseNothing},
}

// elementOf returns the kind of a flag's values; for a flag that may be repeated, that of
// each.
func elementOf(f *pflag.Flag) kind {
	switch name := strings.TrimSuffix(strings.TrimSuffix(f.Value.Type(), "Slice"), "Array"); name {
	case "bool", "duration":
		return kinds[name]
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		return kinds["int"]
	case "float32", "float64":
		return kinds["float"]
	default:
		return kinds["string"]
	}
}

func boolText(v any) (string, bool) {
	b, ok := v.(bool)
	return strconv.FormatBool(b), ok
}

func intText(v any) (string, bool) {
	n, ok := v.(int64)
	return strconv.FormatInt(n, 10), ok
}

func floatText(v any) (string, bool) {
	if x, ok := v.(float64); ok {
		return strconv.FormatFloat(x, 'g', -1, 64), true
	}
	return intText(v)
}

func stringText(v any) (string, bool) {
	s, ok := v.(string)
	return s, ok
}

func parseBool(text string) (any, bool) {
	b, err := strconv.ParseBool(text)
	return b, err == nil
}

func parseInt(text string) (any, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

func parseFloat(text string) (any, bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil
}

func parseNothing(string) (any, bool) { return nil, false }

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
