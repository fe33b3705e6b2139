package helper

import "os"

// Argument makes the program a helper process: its only argument.
const Argument = "verbs-helper"

// Wanted tells whether this process was started as a helper: it then calls Main
// before anything else. Programs that open verbs in helpers do so, test binaries in
// TestMain.
func Wanted() bool { return len(os.Args) == 2 && os.Args[1] == Argument }
