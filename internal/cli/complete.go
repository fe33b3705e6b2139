package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
)

// modelFlag is the flag with the file of a model.
const modelFlag = "model"

// laterPart matches the parts of a split model but for the first, which stands for all.
var laterPart = regexp.MustCompile(`-(\d{5})-of-\d{5}\.gguf$`)

// Complete gives the flags of all commands values for the shell's completion: the words
// that a flag takes, models where one is read, and no files where none is meant.
func Complete(root *cobra.Command) {
	done := map[*pflag.Flag]bool{} // commands share flags, and cobra takes a completion once
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			complete := completionOf(f)
			if complete == nil || done[f] {
				return
			}
			done[f] = true
			if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
				panic(err) // the command has the flag
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// completionOf returns the completion of a flag's value; nil leaves it to the shell, which
// proposes files.
func completionOf(f *pflag.Flag) cobra.CompletionFunc {
	if f.Name == modelFlag {
		return completeModels
	}
	v, ok := f.Value.(flags.Value)
	if !ok || v.Kind() == flags.Input || v.Kind() == flags.Output {
		return nil
	}
	return cobra.FixedCompletions(flags.Words(f), cobra.ShellCompDirectiveNoFileComp)
}

// completeModels proposes the models and folders that begin with a text; of a split model
// the first part.
func completeModels(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	dir, base := filepath.Split(text)
	entries, err := os.ReadDir(filepath.Clean(dir)) // "" is the current folder
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	directive := cobra.ShellCompDirectiveNoFileComp
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name)) // a link to a folder is one
		switch part := laterPart.FindStringSubmatch(name); {
		case err != nil:
		case info.IsDir():
			found = append(found, dir+name+string(filepath.Separator))
			directive |= cobra.ShellCompDirectiveNoSpace // what lies in it follows
		case strings.HasSuffix(name, ".gguf") && (part == nil || part[1] == "00001"):
			found = append(found, dir+name)
		}
	}
	return found, directive
}
