package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/chatclient"
	"ringmaster/internal/flags"
	"ringmaster/internal/gather"
	"ringmaster/internal/progress"
	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

// notOfJoin are the flags that only rank 0 of a group needs, which decides for all.
const notOfJoin = notOfUp + " coordinator ctx max-batch on-loss reduce share"

// leaderWait is how long a host that joined looks for a leader that is away, with the model
// loaded, as the ranks of 'ringmaster launch' do.
const leaderWait = 24 * time.Hour

// newJoin builds the command that joins a group of up.
func newJoin(m *modelOptions, ofModel *pflag.FlagSet) *cobra.Command {
	o := gather.JoinOptions{}
	cmd := &cobra.Command{
		Use:   joinName + " [HOST]",
		Short: "Join the group of a host that runs 'ringmaster up'",
		Long: `Finds the group on this host's networks, or at HOST where they carry no multicast, proves
itself by the code that 'ringmaster up' shows, and becomes a rank of the group: it gets its
rank, the group's key and settings, and the model's files if it lacks them. Of several
networks it proves which work, and the group uses the fastest that works for all hosts.

It ends when the group does. A host that has joined before needs no code, and gets the rank
that it had; the group's key is kept in ringmaster/joined of the user's cache directory.`,
		Example: `  ringmaster join
  ringmaster join studio-a --code 4KQ-M2X
  ringmaster join 10.0.0.1:32324 --group studio-a --model /models/F.gguf`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage.Errorf("%d arguments: want at most one, the host that runs 'ringmaster up'", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				o.Host = args[0]
			}
			if o.Dir, err = gather.StateDir(); err != nil {
				return err
			}
			if o.Files == "" {
				if o.Files, err = modelsDir(); err != nil {
					return usage.Errorf("%w, or name one with --dir", err)
				}
			} else if err := flags.CheckDir("dir", o.Files); err != nil {
				return err
			}
			if path := m.node.File.Path; path != "" {
				if _, err := os.Stat(path); err != nil {
					return usage.Errorf("--model: %w", err)
				}
			}
			o.Model, o.Out, o.Report = m.node.File.Path, cmd.OutOrStdout(), progress.New(cmd.ErrOrStderr())
			if in, ok := cmd.InOrStdin().(*os.File); ok && chatclient.IsTerminal(in) {
				o.Ask = asking(in, cmd.ErrOrStderr())
			}
			seat, err := gather.Join(cmd.Context(), o)
			if err != nil {
				return stopped(cmd.Context(), err)
			}
			if err := takeSettings(cmd.Flags(), seat.Settings); err != nil {
				return usage.Wrap(err)
			}
			defer seat.Close()
			m.node.File.Path, m.cluster.ConnectTimeout = seat.Model, leaderWait
			for moved := true; moved && err == nil; {
				m.cluster.Coordinator = seat.Coordinator
				if err := m.cluster.gathered(seat.Rank, seat.Size, seat.KeyFile); err != nil {
					return err
				}
				moved, err = followSeat(cmd.Context(), m.options(), &seat)
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.Text(f, &o.Code, "code", "", "`code` that 'ringmaster up' shows; asked for on a terminal")
	settings.MarkSecret(f, "code")
	flags.Text(f, &o.Group, "group", "", "`name` or fingerprint of the group, if there are several")
	flags.Out(f, &o.Files, "dir", "", "`directory` for the model's files; default is that of models fetched by --model hf:, ringmaster/models in $XDG_CACHE_HOME or ~/.cache")
	addFlags(f, ofModel, notOfJoin)
	return cmd
}

// errMoves is why a rank leaves that comes back over another network, or as another rank.
var errMoves = errors.New("it moves to where the group is")

// followSeat is the life of a rank until the group ends, or is elsewhere.
func followSeat(ctx context.Context, o node.Options, seat *gather.Seat) (moved bool, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	moves := make(chan bool, 1)
	go func() {
		m := seat.Moves(ctx)
		if m {
			slog.Info("this rank starts again, because the group is elsewhere", "rank", seat.Rank, "coordinator", seat.Coordinator)
			stop(errMoves)
		}
		moves <- m
	}()
	err = follow(ctx, o)
	stop(nil)
	return <-moves, err
}

// asking asks a person questions on a terminal.
func asking(in *os.File, out io.Writer) func(context.Context, string) (string, error) {
	lines := bufio.NewReader(in)
	return func(ctx context.Context, question string) (string, error) {
		if _, err := fmt.Fprint(out, question); err != nil {
			return "", err
		}
		type read struct {
			line string
			err  error
		}
		answer := make(chan read, 1)
		go func() {
			line, err := lines.ReadString('\n')
			answer <- read{strings.TrimSpace(line), err}
		}()
		select {
		case a := <-answer:
			return a.line, a.err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// takeSettings sets the flags that all ranks must have alike to the group's values. One that
// was set here to another value is an error, because the group would refuse this rank.
func takeSettings(f *pflag.FlagSet, given map[string][]string) error {
	for name := range strings.FieldsSeq(alike) {
		values, ok := given[name]
		flag := f.Lookup(name)
		if !ok || flag == nil {
			continue
		}
		if flag.Changed {
			if own := settingsAlike(f)[name]; !slices.Equal(own, values) {
				return fmt.Errorf("--%s is %s here and %s in the group; leave it out", name, strings.Join(own, ","), strings.Join(values, ","))
			}
			continue
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			if err := list.Replace(values); err != nil {
				return fmt.Errorf("the group's --%s: %w", name, err)
			}
			continue
		}
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				return fmt.Errorf("the group's --%s: %w", name, err)
			}
		}
	}
	return nil
}
