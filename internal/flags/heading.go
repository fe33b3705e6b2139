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

// Heading returns the heading of a flag in help, "" if it has none.
func Heading(f *pflag.Flag) string {
	if h := f.Annotations[headingKey]; len(h) > 0 {
		return h[0]
	}
	return ""
}
