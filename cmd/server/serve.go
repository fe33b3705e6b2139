package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/api"
	"ringmaster/distributed"
	"ringmaster/engine"
	"ringmaster/model/builtin"
	"ringmaster/model/tokenizer"
)

// shutdownGrace is how long answers under way may go on after a signal.
const shutdownGrace = 10 * time.Second

// serveOptions are the flags of serve.
type serveOptions struct {
	listen  string
	name    string
	keys    []string
	cors    []string
	hosts   []string
	maxBody int64
	engine  engine.Options
}

func (o *serveOptions) register(f *pflag.FlagSet) {
	f.StringVarP(&o.listen, "listen", "l", "127.0.0.1:8080", "`address` to serve on; other machines reach only one that is not loopback")
	f.StringVar(&o.name, "model-name", "", "name of the model in the API; by default that of the file")
	f.StringSliceVar(&o.keys, "api-key", nil, "`key` that requests must carry as a bearer token; may be given several times")
	f.StringSliceVar(&o.cors, "cors-origin", nil, "`origin` whose pages may call the API, * for any; may be given several times")
	f.StringSliceVar(&o.hosts, "allow-host", nil, "further `name` by which a server on loopback may be called; * for any")
	f.Int64Var(&o.maxBody, "max-body", 32<<20, "most bytes of a request")
	f.IntVar(&o.engine.MaxActive, "max-active", 8, "requests that are answered at the same time")
	f.IntVar(&o.engine.QueueLength, "queue", 64, "requests that wait; one more gets 429; 0 lets none wait")
	f.IntVar(&o.engine.PrefillChunk, "prefill-chunk", 256, "most prompt tokens of one step")
	f.IntVar(&o.engine.Sessions, "sessions", 8, "finished conversations kept for reuse; 0 keeps none")
	f.DurationVar(&o.engine.StuckAfter, "stuck-after", time.Minute, "length of a step after which /readyz says the server is stuck")
}

func newServe(m *modelOptions) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer the OpenAI API (the default command)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), m, o) },
	}
	o.register(cmd.Flags())
	return cmd
}

// engineOptions checks the numbers of the flags. The engine takes 0 for its
// default and -1 for none; on the command line 0 is none.
func (o *serveOptions) engineOptions() (engine.Options, error) {
	e := o.engine
	for _, f := range []struct {
		flag  string
		value *int
		least int
	}{{"max-active", &e.MaxActive, 1}, {"prefill-chunk", &e.PrefillChunk, 1}, {"queue", &e.QueueLength, 0}, {"sessions", &e.Sessions, 0}} {
		if *f.value < f.least {
			return e, fmt.Errorf("--%s is %d; expected %d or more", f.flag, *f.value, f.least)
		}
		if *f.value == 0 {
			*f.value = -1
		}
	}
	if e.StuckAfter <= 0 {
		return e, fmt.Errorf("--stuck-after is %v; expected a duration above 0", e.StuckAfter)
	}
	return e, nil
}

// serve loads the model and serves it until ctx ends. On a rank other than 0 it
// follows the leader instead.
func serve(ctx context.Context, m *modelOptions, o *serveOptions) (err error) {
	if m.cluster.on && m.cluster.rank > 0 {
		return m.follow(ctx)
	}
	options, err := o.engineOptions()
	if err != nil {
		return err
	}
	// The address comes first: loading takes longer and would be for nothing.
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", o.listen, err)
	}
	var handler handlerSwitch
	handler.set(api.Starting(m.starting))
	server := api.NewServer(&handler, api.ServerOptions{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	stopServer := func(grace time.Duration) error {
		end, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			slog.Warn("some answers were cut short", "error", err)
		}
		return <-done
	}
	l, err := m.load(ctx, os.Stderr, o.engine.MaxActive+o.engine.Sessions)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, distributed.ErrClosed) {
			slog.Info("ended before the start", "cause", err)
			err = nil // by a user, here or at another rank
		}
		return errors.Join(err, stopServer(0))
	}
	running := false // a step may still use the model
	defer func() {
		if !running {
			l.close()
		}
	}()
	e, h, err := o.engineOn(m, l, options, listener.Addr())
	if err != nil {
		return errors.Join(err, stopServer(0))
	}
	handler.set(h)
	info := l.model.Info()
	slog.Info("ready", "url", "http://"+listener.Addr().String(), "model", info.Name, "context", info.ContextLength,
		"threads", l.threads, "backend", l.backend.Name(), "load", l.took.Round(time.Millisecond))

	grace, groupEnded := shutdownGrace, make(<-chan struct{})
	if l.group != nil {
		grace, groupEnded = groupGrace/2, l.group.leader.Done()
	}
	select {
	case err = <-done:
		done <- nil
	case <-groupEnded:
		err = l.group.leader.Err()
	case <-ctx.Done():
		slog.Info("shutting down", "grace", grace)
	}
	err = errors.Join(err, stopServer(grace))
	if l.group != nil {
		l.group.leave(context.Cause(ctx)) // ends the step under way
	}
	last, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	stuck := e.Close(last)
	running = stuck != nil
	if running && l.group != nil {
		// A layer of a large model may take longer than the end of a group.
		slog.Warn("a step still runs at the end", "cause", stuck)
		stuck = nil
	}
	return errors.Join(err, stuck)
}

// engineOn makes the engine of a loaded model and the handler of its API.
func (o *serveOptions) engineOn(m *modelOptions, l *loaded, options engine.Options, addr net.Addr) (*engine.Engine, http.Handler, error) {
	t, err := tokenizer.FromGGUF(l.file)
	if err != nil {
		return nil, nil, err
	}
	info := l.model.Info()
	if t.Size() != info.Vocab {
		slog.Warn("vocabulary and logits differ in length", "tokens", t.Size(), "logits", info.Vocab)
	}
	e, err := engine.New(l.model, t, options)
	if err != nil {
		return nil, nil, err
	}
	c := api.Config{
		Engine: api.FromEngine(e), Tokenizer: t,
		Model: api.Model{ID: o.modelName(m, info.Name), Aliases: []string{"default"}, Created: time.Now(),
			ContextLength: info.ContextLength, Fingerprint: m.systemFingerprint(l)},
		APIKeys: o.keys, CORSOrigins: o.cors, Hosts: o.allowedHosts(addr), MaxBody: o.maxBody,
	}
	if l.group != nil {
		c.Collectors = append(c.Collectors, newGroupMetrics(l.group.steps))
	}
	return e, api.New(c), nil
}

// handlerSwitch is a handler that can be exchanged while it serves.
type handlerSwitch struct{ now atomic.Pointer[http.Handler] }

func (s *handlerSwitch) set(h http.Handler) { s.now.Store(&h) }

// ServeHTTP lets the handler of the moment answer.
func (s *handlerSwitch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.now.Load()).ServeHTTP(w, r)
}

// modelName is what the API calls the model.
func (o *serveOptions) modelName(m *modelOptions, inFile string) string {
	switch {
	case o.name != "":
		return o.name
	case inFile != "":
		return inFile
	case m.path != "":
		return strings.TrimSuffix(filepath.Base(m.path), ".gguf")
	}
	return builtin.Name
}

// allowedHosts are the names a server may be called by: on loopback only its
// own, so that no web page can reach it by a name of its making.
func (o *serveOptions) allowedHosts(addr net.Addr) []string {
	tcp, ok := addr.(*net.TCPAddr)
	for _, h := range o.hosts {
		if h == "*" {
			return nil
		}
	}
	if !ok || !tcp.IP.IsLoopback() {
		return nil
	}
	return api.LoopbackHosts(o.hosts...)
}
