package settings

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/pflag"
)

// Commands maps names of commands to the flags that a file may set. A subcommand has both
// names with a space between, as in "key new".
type Commands map[string]*pflag.FlagSet

// File is a TOML file with the settings of commands. A key has the name of a flag. A
// table with the name of a command is for that command. The part before the first table
// is for the shared commands, and their tables override it.
//
//	ctx = 65536
//	[serve]
//	listen = "0.0.0.0:8080"
//	[key.new]
//	requests = "60/minute"
type File struct {
	// Path is the file's path, for errors.
	Path   string
	tables map[string]map[string]entry // by command, "" for the part before the tables
}

// entry is the value of a key as go-toml decodes it, and its line, from 1.
type entry struct {
	value any
	line  int
}

// Parse parses a file's text and checks every key and value against the flags of all
// commands, so that a mistake is found whichever command runs. The commands in shared use
// the part before the first table. removed returns the error for a key that was a flag of
// these commands, and may be nil. An error has the file's path and the line, and never a
// value.
func Parse(path string, text []byte, commands Commands, shared []string, removed func(key string) error) (*File, error) {
	var document map[string]any
	if err := toml.Unmarshal(text, &document); err != nil {
		return nil, syntaxError(path, text, err)
	}
	f := &File{Path: path, tables: map[string]map[string]entry{}}
	lines := linesOf(text)
	if err := f.collect("", nil, document, lines, commands); err != nil {
		return nil, err
	}
	for _, table := range slices.Sorted(maps.Keys(f.tables)) {
		users, removed := []string{table}, removed
		if table == "" {
			users = shared
		} else if !slices.Contains(shared, table) {
			removed = nil
		}
		for _, key := range f.ordered(table) {
			if err := f.check(table, key, users, commands, removed); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// ordered lists the keys of a table by their lines.
func (f *File) ordered(table string) []string {
	keys := slices.Sorted(maps.Keys(f.tables[table]))
	slices.SortStableFunc(keys, func(a, b string) int { return f.tables[table][a].line - f.tables[table][b].line })
	return keys
}

// collect stores the values of a table, and recurses into the tables below it. at is the
// table's path of keys.
func (f *File) collect(command string, at []string, table map[string]any, lines map[string]int, commands Commands) error {
	f.tables[command] = map[string]entry{}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		value, where := table[key], append(at[:len(at):len(at)], key)
		line := lines[strings.Join(where, "\x00")]
		below, ok := value.(map[string]any)
		if !ok {
			f.tables[command][key] = entry{value, line}
			continue
		}
		name := strings.TrimSpace(command + " " + key)
		names := prefixes(commands)
		if !slices.Contains(names, name) {
			for i, known := range names {
				names[i] = dotted(known)
			}
			return fmt.Errorf("%s:%d: there is no command for the table [%s]%s", f.Path, line, dotted(name), Nearest(dotted(name), "[%s]", names))
		}
		if err := f.collect(name, where, below, lines, commands); err != nil {
			return err
		}
	}
	return nil
}

// prefixes returns the names of commands, and of those that only have subcommands.
func prefixes(commands Commands) []string {
	var out []string
	for name := range commands {
		for i, c := range name {
			if c == ' ' {
				out = append(out, name[:i])
			}
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// check returns an error unless a key is a flag of one of the commands that its table is
// for, and its value is valid in each of them.
func (f *File) check(table, key string, users []string, commands Commands, removed func(key string) error) error {
	e, known := f.tables[table][key], []string{}
	found := false
	for _, user := range users {
		flags := commands[user]
		if flags == nil {
			continue
		}
		flags.VisitAll(func(g *pflag.Flag) {
			if Settable(g) {
				known = append(known, g.Name)
			}
		})
		g := flags.Lookup(key)
		if g == nil || !Settable(g) {
			continue
		}
		found = true
		texts, err := texts(g, e.value)
		if err == nil {
			err = set(flags, g, texts)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", f.Path, e.line, err)
		}
	}
	if found {
		return nil
	}
	if removed != nil {
		if err := removed(key); err != nil {
			return fmt.Errorf("%s:%d: %w", f.Path, e.line, err)
		}
	}
	in := ""
	if table != "" {
		in = " in [" + dotted(table) + "]"
	}
	return fmt.Errorf("%s:%d: there is no setting %q%s%s", f.Path, e.line, key, in, f.elsewhere(key, known, commands))
}

// elsewhere proposes a replacement for an unknown key: the same key in the table of a
// command that has it, or the nearest known key.
func (f *File) elsewhere(key string, known []string, commands Commands) string {
	if slices.Contains(prefixes(commands), key) {
		return fmt.Sprintf("; the settings of that command are a table, [%s]", key)
	}
	var tables []string
	for name, flags := range commands {
		if g := flags.Lookup(key); g != nil && Settable(g) {
			tables = append(tables, "["+dotted(name)+"]")
		}
	}
	if len(tables) > 0 {
		slices.Sort(tables)
		return "; it belongs in " + strings.Join(tables, " or ")
	}
	return Nearest(key, "%q", known)
}

// Settable reports whether a file may set a flag; it may not set the one that names the
// file.
func Settable(f *pflag.Flag) bool { return !builtin(f.Name) && f.Name != Flag }

// Apply sets the flags of a command that have no value yet, and records the lines that
// they came from. It returns how many it set.
func (f *File) Apply(command string, shared bool, flags *pflag.FlagSet, origins Origins) (int, error) {
	n := 0
	tables := []string{command}
	if shared {
		tables = append(tables, "")
	}
	for _, table := range tables {
		for _, key := range f.ordered(table) {
			g := flags.Lookup(key)
			if g == nil || g.Changed {
				continue
			}
			e := f.tables[table][key]
			list, err := texts(g, e.value)
			if err == nil {
				err = set(flags, g, list)
			}
			if err != nil {
				return n, fmt.Errorf("%s:%d: %w", f.Path, e.line, err)
			}
			origins[key] = Origin{Source: InFile, Name: f.Path, Line: e.line}
			n++
		}
	}
	return n, nil
}

// texts returns the values for Set, one unless the flag may be repeated.
func texts(f *pflag.Flag, v any) ([]string, error) {
	k := elementOf(f)
	_, repeated := f.Value.(pflag.SliceValue)
	list, isList := v.([]any)
	if !isList || !repeated {
		list = []any{v}
	}
	out := []string{}
	for _, x := range list {
		s, ok := k.argument(x)
		if !ok {
			expected := string(k)
			if repeated {
				expected += " or a list"
			}
			return nil, fmt.Errorf("%s is %s; expected %s", f.Name, typeName(x), expected)
		}
		out = append(out, s)
	}
	return out, nil
}

// set gives a flag its values, in place of its default.
func set(flags *pflag.FlagSet, f *pflag.Flag, values []string) error {
	var err error
	if list, ok := f.Value.(pflag.SliceValue); ok {
		// Set would split values at commas.
		if err = list.Replace(values); err == nil {
			f.Changed = true
		}
	} else {
		err = flags.Set(f.Name, values[0])
	}
	switch {
	case err == nil:
		return nil
	case Secret(f):
		return fmt.Errorf("%s has no value that --%s takes", f.Name, f.Name)
	default:
		return fmt.Errorf("%s: %w", f.Name, err)
	}
}

// HasSecret reports whether the file gives a secret flag of any command a value.
func (f *File) HasSecret(commands Commands) bool {
	for _, keys := range f.tables {
		for key := range keys {
			for _, flags := range commands {
				if g := flags.Lookup(key); g != nil && Secret(g) {
					return true
				}
			}
		}
	}
	return false
}

// quoted matches the number that the parser's errors repeat when it is too large.
var quoted = regexp.MustCompile(`strconv\.\w+: (parsing "[^"]*": )?`)

// syntaxError returns an error of the parser with the file's line, but without the text
// around it, because that may contain a key.
func syntaxError(path string, text []byte, err error) error {
	what := quoted.ReplaceAllString(strings.TrimPrefix(err.Error(), "toml: "), "")
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := e.Position()
		return fmt.Errorf("%s:%d:%d: not TOML: %s", path, line, column, what)
	}
	// For a repeated key or table the parser does not report the line.
	seen, again := map[string]bool{}, 0
	walk(text, func(where string, line int) {
		if seen[where] && again == 0 {
			again = line
		}
		seen[where] = true
	})
	if again > 0 {
		return fmt.Errorf("%s:%d: not TOML: %s", path, again, what)
	}
	return fmt.Errorf("%s: not TOML: %s", path, what)
}

// linesOf maps the keys and tables of a document, as full paths joined by zero bytes, to
// the lines where they begin.
func linesOf(text []byte) map[string]int {
	lines := map[string]int{}
	walk(text, func(where string, line int) {
		for i := range len(where) + 1 { // tables that only a dotted key names
			if i < len(where) && where[i] != 0 {
				continue
			}
			if _, ok := lines[where[:i]]; !ok {
				lines[where[:i]] = line
			}
		}
	})
	return lines
}

// walk visits the keys of a document in order until the first that is not TOML. It uses
// go-toml's parser, because the decoder does not report positions; the parser's interface
// may change with the version.
func walk(text []byte, visit func(where string, line int)) {
	var p unstable.Parser
	p.Reset(text)
	lineOf := func(n *unstable.Node) int { return 1 + bytes.Count(text[:n.Raw.Offset], []byte("\n")) }
	path := func(prefix string, n *unstable.Node) (string, int) {
		line := 0
		for keys := n.Key(); keys.Next(); {
			if line == 0 {
				line = lineOf(keys.Node())
			}
			if prefix != "" {
				prefix += "\x00"
			}
			prefix += string(keys.Node().Data)
		}
		return prefix, line
	}
	var keyValue func(prefix string, n *unstable.Node)
	keyValue = func(prefix string, n *unstable.Node) {
		where, line := path(prefix, n)
		visit(where, line)
		if v := n.Value(); v.Kind == unstable.InlineTable {
			for pairs := v.Children(); pairs.Next(); {
				keyValue(where, pairs.Node())
			}
		}
	}
	table := ""
	for p.NextExpression() {
		switch n := p.Expression(); n.Kind {
		case unstable.Table, unstable.ArrayTable:
			where, line := path("", n)
			table = where
			visit(where, line)
		case unstable.KeyValue:
			keyValue(table, n)
		}
	}
}

// dotted returns the name of a command as a table's.
func dotted(command string) string { return strings.ReplaceAll(command, " ", ".") }
