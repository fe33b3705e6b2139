package flags

import "github.com/spf13/pflag"

// headingKey is the annotation of a flag with the heading under which help lists it.
const headingKey = "ringmaster-heading"

// Under puts the flags of f that have no heading yet under a heading in help: those
// declared since the last call.
func Under(f *pflag.FlagSet, heading string) {
	f.VisitAll(func(flag *pflag.Flag) {
		if Heading(flag) != "" {
			return
		}
		if flag.Annotations == nil {
			flag.Annotations = map[string][]string{}
		}
		flag.Annotations[headingKey] = []string{heading}
	})
}

// wordsKey is the annotation of a flag with the words that completions propose.
const wordsKey = "ringmaster-words"

// Propose gives completions words for the value of a flag. The flag may take others too.
func Propose(flag *pflag.Flag, words ...string) *pflag.Flag {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[wordsKey] = words
	return flag
}

// Words returns what completions propose for the value of a flag.
func Words(flag *pflag.Flag) []string { return flag.Annotations[wordsKey] }

// Heading returns the heading of a flag in help, "" if it has none.
func Heading(f *pflag.Flag) string {
	if h := f.Annotations[headingKey]; len(h) > 0 {
		return h[0]
	}
	return ""
}
