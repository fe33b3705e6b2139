package highlight

import "strings"

// languages maps the names that blocks of code have in Markdown to chroma's lexers. It
// has only lexers that a test bounds on hostile code; in particular none that runs
// several others over the whole text.
var languages = func() map[string]string {
	out := map[string]string{}
	for lexer, names := range map[string]string{
		"Bash":                     "bash sh shell zsh ksh console shell-session",
		"C":                        "c h",
		"C#":                       "csharp cs c#",
		"C++":                      "cpp c++ cc cxx hpp cuda cu",
		"CMake":                    "cmake",
		"CSS":                      "css",
		"Clojure":                  "clojure clj",
		"Dart":                     "dart",
		"Diff":                     "diff patch udiff",
		"Docker":                   "dockerfile docker containerfile",
		"Elixir":                   "elixir ex exs",
		"Erlang":                   "erlang erl",
		"Fish":                     "fish",
		"Fortran":                  "fortran f90",
		"GraphQL":                  "graphql gql",
		"Go":                       "go golang",
		"HTML":                     "html htm",
		"Haskell":                  "haskell hs",
		"INI":                      "ini cfg dosini properties",
		"JSON":                     "json jsonc json5 jsonl",
		"Java":                     "java",
		"JavaScript":               "javascript js jsx mjs node",
		"Julia":                    "julia jl",
		"Kotlin":                   "kotlin kt",
		"LLVM":                     "llvm",
		"Lua":                      "lua",
		"Makefile":                 "makefile make mk",
		"NASM":                     "nasm asm assembly",
		"Nginx configuration file": "nginx",
		"Nix":                      "nix",
		"OCaml":                    "ocaml ml",
		"Objective-C":              "objective-c objc objectivec",
		"Perl":                     "perl pl",
		"PowerShell":               "powershell ps1 pwsh",
		"Protocol Buffer":          "protobuf proto",
		"Python":                   "python py python3 py3 pycon",
		"R":                        "r",
		"Ruby":                     "ruby rb",
		"Rust":                     "rust rs",
		"SQL":                      "sql sqlite mysql",
		"PostgreSQL SQL dialect":   "postgresql postgres psql",
		"Scala":                    "scala",
		"Scheme":                   "scheme lisp racket",
		"Swift":                    "swift",
		"TOML":                     "toml",
		"TeX":                      "latex tex",
		"TypeScript":               "typescript ts tsx",
		"VimL":                     "vim viml",
		"XML":                      "xml svg xslt plist",
		"YAML":                     "yaml yml",
		"Zig":                      "zig",
	} {
		for name := range strings.FieldsSeq(names) {
			out[name] = lexer
		}
	}
	return out
}()
