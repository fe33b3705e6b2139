package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys of log lines are nouns in snake_case; an error always has the key "error".
var (
	logKey     = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	notNouns   = strings.Fields("about after against at because before by during for from has in is of on per since than through to took until used was while with within without")
	notError   = []string{"cause", "err", "reason"}
	logMethods = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3, "LogAttrs": 3, "With": 0} // arguments before the keys
	logAttrs   = strings.Fields("Any Bool Duration Float64 Group Int Int64 String Time Uint64")
	isLogger   = regexp.MustCompile(`^(slog|[lL]og|[lL]ogger|.*(Log|Logger))$`)
	errorName  = regexp.MustCompile(`^(err|cause|reason|[a-z]+Err)$`)
)

// lastName returns the name after the last dot of an expression, which may be a call.
func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.CallExpr:
		return lastName(x.Fun)
	}
	return ""
}

// forwarders names the functions of a file that hand their variadic arguments to a logger,
// with the number of arguments before these.
func forwarders(file *ast.File) map[string]int {
	found := map[string]int{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || len(f.Type.Params.List) == 0 {
			continue
		}
		last := f.Type.Params.List[len(f.Type.Params.List)-1]
		if _, variadic := last.Type.(*ast.Ellipsis); !variadic {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && call.Ellipsis.IsValid() && lastName(call.Args[len(call.Args)-1]) == last.Names[0].Name {
				if _, _, ok := logCall(call, nil); ok {
					found[f.Name.Name] = f.Type.Params.NumFields() - 1
				}
			}
			return true
		})
	}
	return found
}

// logCall returns the message of a call that logs (nil if it has none) and its keys and values.
func logCall(call *ast.CallExpr, wrappers map[string]int) (message ast.Expr, args []ast.Expr, ok bool) {
	sel, isSel := call.Fun.(*ast.SelectorExpr)
	name := lastName(call.Fun)
	skip, ok := wrappers[name]
	if n, method := logMethods[strings.TrimSuffix(name, "Context")]; method && isSel && isLogger.MatchString(lastName(sel.X)) {
		skip, ok = n, true
		if strings.HasSuffix(name, "Context") {
			skip++
		}
	}
	if !ok || len(call.Args) < skip {
		return nil, nil, false
	}
	if skip > 0 {
		message = call.Args[skip-1]
	}
	return message, call.Args[skip:], true
}

// pairs lists the keys and values among arguments of a logger: "key", value, or an
// attribute, whose constructor is a call of its own.
func pairs(args []ast.Expr, see func(key, value ast.Expr)) {
	for len(args) > 0 {
		if lit, ok := args[0].(*ast.BasicLit); !ok || lit.Kind != token.STRING {
			args = args[1:]
			continue
		}
		var value ast.Expr
		if len(args) > 1 {
			value = args[1]
		}
		see(args[0], value)
		args = args[min(2, len(args)):]
	}
}

// wrongLogs says what is wrong with the log lines of a file.
func wrongLogs(files *token.FileSet, file *ast.File) (wrong []string) {
	wrappers := forwarders(file)
	see := func(key, value ast.Expr) {
		lit, ok := key.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		k, _ := strconv.Unquote(lit.Value)
		place := files.Position(lit.Pos()).String() + ": the log key " + lit.Value
		if k == "" {
			return // a group that is inlined
		}
		if !logKey.MatchString(k) {
			wrong = append(wrong, place+" is not snake_case")
		}
		if slices.Contains(notNouns, k) {
			wrong = append(wrong, place+" is no noun")
		}
		if slices.Contains(notError, k) || value != nil && k != "error" && errorName.MatchString(lastName(value)) {
			wrong = append(wrong, place+" of an error must be \"error\"")
		}
	}
	lists := map[string]bool{} // variables that are handed to loggers as args...
	for range 2 {              // the lists are known after the first walk
		wrong = nil
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if len(n.Lhs) == 1 && len(n.Rhs) == 1 && lists[lastName(n.Lhs[0])] {
					if c, ok := n.Rhs[0].(*ast.CompositeLit); ok {
						pairs(c.Elts, see)
					}
				}
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && lastName(sel.X) == "slog" && slices.Contains(logAttrs, sel.Sel.Name) && len(n.Args) > 1 {
					see(n.Args[0], n.Args[1])
					if sel.Sel.Name == "Group" {
						pairs(n.Args[1:], see)
					}
				}
				if lastName(n.Fun) == "append" && lists[lastName(n.Args[0])] {
					pairs(n.Args[1:], see)
				}
				message, args, ok := logCall(n, wrappers)
				if !ok {
					break
				}
				if n.Ellipsis.IsValid() {
					lists[lastName(args[len(args)-1])] = true
				}
				pairs(args, see)
				if lit, ok := message.(*ast.BasicLit); ok && strings.HasSuffix(strings.Trim(lit.Value, "\"`"), ".") {
					wrong = append(wrong, files.Position(lit.Pos()).String()+": a log message ends with a period")
				}
			}
			return true
		})
	}
	return wrong
}

// TestLogLines reads every call of log/slog.
func TestLogLines(t *testing.T) {
	for _, f := range sources(t, "*.go") {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(root, f), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, w := range wrongLogs(files, file) {
			t.Error(strings.TrimPrefix(w, root+"/"))
		}
	}
}

// TestWrongLogLines: what is wrong with a log line is seen.
func TestWrongLogLines(t *testing.T) {
	for line, want := range map[string]int{
		`slog.Info("joined", "rank", 1, "bytes_left", 2, "error", err)`:                             0,
		`slog.Info("joined", "MiB left", 1)`:                                                        1,
		`slog.Info("joined", "repeated-in-float32", 1)`:                                             1,
		`slog.InfoContext(ctx, "joined", "Rank", 1)`:                                                1,
		`slog.Log(ctx, slog.LevelInfo, "joined", "of", 1)`:                                          1,
		`l.cfg.Log.Warn("failed", "cause", text)`:                                                   1,
		`e.opts.Logger.Warn("failed", "epoch", 1, "failure", err)`:                                  1,
		`a.logger().With("took", d).Info("ended")`:                                                  1,
		`log.LogAttrs(ctx, level, "request", slog.Duration("took", d))`:                             1,
		`log.Info("request", slog.Group("what", "by", 1), slog.String("a b", ""))`:                  2,
		`log.Info("it ended.")`:                                                                     1,
		`line := []any{"epoch", 1, "For", 2}; line = append(line, "in", 3); log.Info("x", line...)`: 2,
		`note("failed", "reason", err)`:                                                             1,
		`http.Error(w, "no.", "MiB left")`:                                                          0,
	} {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, "", "package p\nfunc f() {"+line+"}\nfunc note(text string, args ...any) { log.Warn(text, args...) }", 0)
		require.NoError(t, err)
		require.Len(t, wrongLogs(files, file), want, line)
	}
}
