package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/distributed/accept"
	"ringmaster/engine"
	"ringmaster/internal/flags"
	"ringmaster/internal/progress"
	"ringmaster/internal/server"
	"ringmaster/internal/settings"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/chat"
	"ringmaster/node"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	server.Options
	cacheDir string // DIR or DIR=SIZE
	conns    []int  // most connections in total, and of one address
}

func (o *serveOptions) register(f *pflag.FlagSet) {
	d := engine.Defaults()
	flags.Int(f, &o.Engine.CacheEntries, "cache-entries", d.CacheEntries, flags.From(0), "most finished sequences kept in the prefix cache; memory is planned for as many of the full context, by default for 8; 0 disables it")
	flags.Duration(f, &o.Engine.CacheTimeout, "cache-timeout", d.CacheTimeout, flags.FromDuration(0), "how long a finished sequence is kept in the prefix cache without being used; 0 is without end")
	flags.Out(f, &o.cacheDir, "cache-dir", "", "prefix cache on disk: keep finished sequences in this `directory`, so that conversations continue after a restart; only this server may use it. DIR=SIZE, such as /var/cache/rm=64GiB, bounds its bytes; default 16GiB")
	flags.Under(f, headingModel)
	flags.Int(f, &o.Engine.MaxActive, "max-active", d.MaxActive, flags.From(1), "most sequences in one step; with several API keys, a key that has none running may run one more, in the place of an entry of the prefix cache")
	flags.Int(f, &o.Engine.QueueLength, "queue", d.QueueLength, flags.From(0), "most requests waiting in the queue, further ones get status 429; 0 disables the queue. With several API keys, a key may have as many as there are free places")
	flags.Duration(f, &o.Engine.TokenLatency, "token-latency", d.TokenLatency, flags.FromDuration(0), "how long a prompt may delay the next token of answers beside it: steps have fewer of its tokens; 0: half of --max-batch, however long that takes")
	flags.Typed(f, &o.Drafts, "drafts", "auto", draftsForm, parseDrafts, "where guesses of the next tokens come from, so that a step may give an answer several; no answer changes: auto, from texts and from the model's block for multi-token prediction, where it has one and room for it, or from that of a file: auto:FILE; text, what prompt and answer have said; mtp, the block alone, also as mtp:FILE; off, none")
	flags.Under(f, headingPerformance)
	flags.Address(f, &o.Listen, "listen,l", "127.0.0.1:8080", "`address` to listen on; other hosts cannot reach a loopback address")
	flags.Texts(f, &o.Names, "model-name", false, "`name` of the model in the API; default is the name in the file; may be repeated")
	flags.Bool(f, &o.Strict, "strict-model-names", false, "refuse requests for a model of any other name; else every name stands for the model")
	flags.OneOf(f, &o.Format, "chat-format", "auto", chat.FormatNames(), "`format` in which the model writes conversations: "+strings.Join(chat.FormatNames(), ", ")+"; auto finds out from the file")
	flags.Texts(f, &o.Keys.Given, "api-key", false, "`key` that requests must send as a bearer token; may be repeated")
	settings.MarkSecret(f, "api-key")
	flags.File(f, &o.Keys.File, "api-keys", "`file` of API keys with names and limits, one a line; read again when it changes; see 'ringmaster key new'")
	flags.Out(f, &o.Audit, "audit-log", "", "append a line of JSON for each request to this `file`: key, route, tokens, status, time; no texts")
	flags.Texts(f, &o.CORS, "cors-origin", true, "`origin` that pages may call the API from, * for any; may be repeated")
	flags.Texts(f, &o.Hosts, "allow-host", true, "host `name` that requests may address the server by, * for any; on loopback its own names are accepted too; may be repeated")
	flags.File(f, &o.TLS.Cert, "tls-cert", "serve HTTPS with the certificate in this PEM `file`, with its chain; read again when it changes")
	flags.File(f, &o.TLS.Key, "tls-key", "PEM `file` of the private key of --tls-cert")
	flags.Int64(f, &o.MaxBody, "max-body", 32<<20, flags.Within[int64](1, mostBody), "largest request body in bytes; all bodies that are being received and parsed have at most twice as many; further ones get status 429")
	flags.Ints(f, &o.conns, "max-connections", nil, flags.From(0), "most connections of all clients, and after a comma of one address (IPv6: of a /64 network), such as 1000,800. The default, 0, is 512, or half of ulimit -n if that is less, and for an address half of all; raise it behind a proxy, because that is one address")
}

func newServe(m *modelOptions) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the OpenAI-compatible API (the default command)",
		Long: `Serves a model over the OpenAI API until it gets SIGTERM or SIGINT. It listens first,
and loads then: /readyz says how far it is. With --distributed it is one rank of a group.`,
		Example: `  ringmaster serve --model /models/F.gguf
  ringmaster serve --model F.gguf --listen 0.0.0.0:8080 --api-keys keys --ctx 65536
  ringmaster serve --model F.gguf --distributed --world-size 2 --rank 0 --coordinator 10.0.0.1:9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m.cluster.serves = true
			n := m.options()
			n.Plans = cmd.ErrOrStderr()
			if greets(cmd) {
				n.Plans, o.Greeting = io.Discard, cmd.ErrOrStderr()
			}
			if n.Group != nil && n.Group.Rank > 0 {
				return follow(cmd.Context(), n)
			}
			if err := o.settle(m); err != nil {
				return usage.Wrap(err)
			}
			return server.Run(cmd.Context(), o.Options, n)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

// greets reports whether a command greets a person: it serves, and writes to a terminal on
// which no log is asked for.
func greets(cmd *cobra.Command) bool {
	log := cmd.Flags().Lookup("log")
	return (cmd.Name() == "serve" || cmd.Name() == upName || !cmd.HasParent()) && log != nil && !log.Changed && progress.IsTerminal(cmd.ErrOrStderr())
}

// terse reports whether the log of a command has warnings and errors only. The ranks of a group log who joins, because a person waits for that; up, which has no --distributed, prints it.
func terse(cmd *cobra.Command) bool {
	grouped := cmd.Flags().Lookup("distributed")
	return greets(cmd) && (grouped == nil || grouped.Value.String() == "false")
}

// settle takes what flags with several values say, and those of the model.
func (o *serveOptions) settle(m *modelOptions) (err error) {
	if len(o.conns) > 2 {
		return fmt.Errorf("--max-connections has %d numbers; expected that of all connections, and that of one address", len(o.conns))
	}
	all := append(slices.Clone(o.conns), 0, 0)
	o.Connections, o.ConnectionsPerAddress = all[0], all[1]
	o.Engine.StuckAfter = m.cluster.WorkTimeout / 5
	if o.cacheDir != "" && m.cluster.Stages.Given() {
		return fmt.Errorf("--cache-dir keeps no conversations of a group with --stages, because no rank has all layers of one; leave one of them out")
	}
	if o.Disk, err = parseCacheDir(o.cacheDir); err != nil {
		return fmt.Errorf("--cache-dir %s: %w", o.cacheDir, err)
	}
	return nil
}

// parseCacheDir reads DIR or DIR=SIZE. It refuses a name with = if the last part is not a
// size, because a slip in the size must not name another directory.
func parseCacheDir(s string) (d server.Disk, err error) {
	at := strings.LastIndex(s, "=")
	if at < 0 || strings.ContainsRune(s[at:], filepath.Separator) {
		return server.Disk{Dir: s}, nil
	}
	d.Dir = s[:at]
	d.Budget, err = units.ParseBytes(s[at+1:])
	return d, errors.Join(err, flags.Formed(at > 0 && s[at+1:] != ""))
}

// follow is the life of a rank other than 0.
func follow(ctx context.Context, o node.Options) error {
	defer accept.Hold()()
	return node.New(o).Follow(ctx)
}
