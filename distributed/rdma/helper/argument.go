package helper

import "os"

// Argument makes the program a helper process: its only argument.
const Argument = "verbs-helper"

// Wanted reports whether this process was started as a helper; if so, the program
// must call Main before anything else. Every program that opens verbs in helpers
// checks it first, test binaries in TestMain.
func Wanted() bool { return len(os.Args) == 2 && os.Args[1] == Argument }
