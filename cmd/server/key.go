package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/api/keys"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
)

// newKey builds the command that makes API keys.
func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Short:   "Make API keys for serve --api-keys",
		Example: `  ringmaster key new alice --api-keys keys`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// These commands use no group and no model: their flags are not validated.
		PersistentPreRunE: flagsOnly,
	}
	cmd.AddCommand(newKeyNew())
	return cmd
}

func newKeyNew() *cobra.Command {
	var k keys.Key
	var path string
	cmd := &cobra.Command{
		Use:   "new NAME --api-keys FILE",
		Short: "Make a key, add its hash to a file and print it",
		Long: `Makes an API key of 256 random bits, prints it, and adds a line with its name,
hash and limits to the file, which is made if there is none. The key itself is
kept nowhere: whoever loses it needs a new one.

A server with --api-keys FILE accepts the key within a second. To revoke a key,
remove its line or write another file in its place.`,
		Example: `  ringmaster key new alice --api-keys keys
  ringmaster key new ci --api-keys keys --tokens 1000000/day --expires 2027-01-31`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage.Errorf("%d arguments; expected the name of the key", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			k.Name = args[0]
			switch err := keys.CheckName(k.Name); {
			case err != nil:
				return usage.Wrap(err)
			case path == "":
				return usage.Errorf("--api-keys FILE is missing: the file that the server reads")
			case !k.Expires.IsZero() && k.Expires.Before(time.Now()):
				return usage.Errorf("--expires %s is in the past", cmd.Flags().Lookup("expires").Value)
			}
			secret := keys.New()
			k.Hash = keys.Hash(secret)
			if err := keys.Add(path, k); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), secret)
			return err
		},
	}
	f := cmd.Flags()
	flags.Out(f, &path, "api-keys", "", "`file` of API keys")
	flags.Typed(f, &k.Requests, "requests", "", keys.RequestsForm, keys.Requests, "`limit` of requests, such as 60/minute: per second, minute, hour or day; none without")
	flags.Typed(f, &k.Tokens, "tokens", "", keys.TokensForm, keys.Tokens, "`limit` of tokens of prompts and answers, such as 1000000/day; none without")
	flags.Typed(f, &k.Expires, "expires", "", keys.ExpiryForm, keys.ParseExpiry, "last `day` of the key, such as 2027-01-31 (UTC), or a time; never without")
	flags.Int(f, &k.Weight, "weight", 1, flags.Within(1, keys.MostWeight), "share of the key in the tokens of the steps, to those of other keys")
	flags.Bool(f, &k.Shared, "share-cache", false, "let the key share the prefix cache with the other keys that do, which tells them what others have asked")
	return cmd
}
