package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/api"
	"ringmaster/api/dialect"
	"ringmaster/distributed"
	"ringmaster/distributed/accept"
	"ringmaster/engine"
	"ringmaster/internal/flags"
	"ringmaster/internal/network"
	"ringmaster/internal/program"
	"ringmaster/internal/safetext"
	"ringmaster/internal/settings"
	"ringmaster/internal/traces"
	"ringmaster/internal/usage"
	"ringmaster/model/builtin"
	"ringmaster/model/chat"
)

// shutdownGrace is how long requests in progress may continue after a signal.
const shutdownGrace = 10 * time.Second

// serveOptions are the flags of serve.
type serveOptions struct {
	listen  string
	names   []string // of the model; none: that of the file
	strict  bool
	format  string // of conversations
	keys    []string
	keyFile string
	audit   string // file of the audit log
	cors    []string
	hosts   []string
	maxBody int64
	tls     tlsOptions
	conns   []int // most connections in total, and of one address
	engine  engine.Options
	disk    diskOptions
}

func (o *serveOptions) register(f *pflag.FlagSet) {
	flags.Int(f, &o.engine.Sessions, "sessions", 8, flags.From(0), "finished sequences kept in the prefix cache; 0 disables it")
	flags.Duration(f, &o.engine.SessionTimeout, "session-timeout", time.Hour, flags.FromDuration(0), "how long a finished sequence is kept in the prefix cache without being used; 0 is without end")
	o.disk.register(f)
	flags.Under(f, headingModel)
	flags.Int(f, &o.engine.MaxActive, "max-active", 8, flags.From(1), "most sequences in one step; with several API keys, a key that has none running may run one more, in the place of one of --sessions")
	flags.Int(f, &o.engine.QueueLength, "queue", 64, flags.From(0), "most requests waiting in the queue, further ones get status 429; 0 disables the queue. With several API keys, a key may have as many as there are free places")
	flags.Under(f, headingPerformance)
	flags.Address(f, &o.listen, "listen,l", "127.0.0.1:8080", "`address` to listen on; other hosts cannot reach a loopback address")
	flags.Texts(f, &o.names, "model-name", false, "`name` of the model in the API; default is the name in the file; may be repeated")
	flags.Bool(f, &o.strict, "strict-model-names", false, "refuse requests for a model of any other name; else every name stands for the model")
	flags.OneOf(f, &o.format, "chat-format", "auto", chat.FormatNames(), "`format` in which the model writes conversations: "+strings.Join(chat.FormatNames(), ", ")+"; auto finds out from the file")
	flags.Texts(f, &o.keys, "api-key", false, "`key` that requests must send as a bearer token; may be repeated")
	settings.MarkSecret(f, "api-key")
	flags.File(f, &o.keyFile, "api-keys", "`file` of API keys with names and limits, one a line; read again when it changes; see 'ringmaster key new'")
	flags.Out(f, &o.audit, "audit-log", "", "append a line of JSON for each request to this `file`: key, route, tokens, status, time; no texts")
	flags.Texts(f, &o.cors, "cors-origin", true, "`origin` whose pages may call the API, * for any; may be repeated")
	flags.Texts(f, &o.hosts, "allow-host", true, "host `name` that requests may address the server by, * for any; on loopback its own names are accepted too; may be repeated")
	o.tls.register(f)
	flags.Int64(f, &o.maxBody, "max-body", 32<<20, flags.Within[int64](1, mostBody), "largest request body in bytes; all bodies that are being received and parsed have at most twice as many, further ones get status 429")
	flags.Ints(f, &o.conns, "max-connections", nil, flags.From(0), "most connections of clients, and after a comma of one address (IPv6: of a /64 network), such as 1000,800; 0 or none is 512, or half of ulimit -n if that is less, and half of all for an address. Behind a proxy, which is one address, raise both")
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
			return serve(cmd.Context(), cmd.ErrOrStderr(), m, o)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

// limitsOf is what the flags of the scheduler mean to the engine, to which 0 is the default
// and -1 none; on the command line 0 is none. A step has at most batch tokens.
func limitsOf(e engine.Options, batch int) engine.Options {
	e.PrefillChunk = max(1, batch/2) // the rest is for sequences that decode
	for _, n := range []*int{&e.QueueLength, &e.Sessions} {
		if *n == 0 {
			*n = -1
		}
	}
	if e.SessionTimeout == 0 {
		e.SessionTimeout = -1
	}
	return e
}

// serve loads the model and serves it until ctx ends. On a rank other than 0 it
// follows the leader instead.
func serve(ctx context.Context, log io.Writer, m *modelOptions, o *serveOptions) (err error) {
	defer accept.Hold()()
	if m.cluster.on && m.cluster.rank > 0 {
		return m.follow(ctx)
	}
	options := limitsOf(o.engine, m.batch)
	options.StuckAfter = m.cluster.work / 5
	for _, name := range o.names {
		if len(name) > dialect.MaxModelName {
			return usage.Errorf("--model-name has %d bytes; requests may name at most %d", len(name), dialect.MaxModelName)
		}
	}
	if err := o.checkKeys(); err != nil {
		return usage.Wrap(err)
	}
	total, ofAddress, err := o.connections()
	if err != nil {
		return usage.Wrap(err)
	}
	ring, err := o.ring()
	if err != nil {
		return err
	}
	audit, err := api.OpenAudit(o.audit)
	if err != nil {
		return usage.Errorf("--audit-log: %w", err)
	}
	defer audit.Close()
	certificate, err := o.tls.load()
	if err != nil {
		return usage.Wrap(err)
	}
	sender, err := traces.Open(ctx, traces.Options{Version: program.Version()})
	if err != nil {
		return usage.Wrap(err)
	}
	defer sender.Close()
	if sender != nil {
		m.cluster.formed = sender.Formed
	}
	if options.Disk, err = o.disk.open(); err != nil {
		return err
	}
	defer o.disk.close(options.Disk)
	// Listen first: a wrong address should not show only after a long load.
	listener, err := network.Listen(ctx, o.listen, net.KeepAliveConfig{}, nil)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	var handler handlerSwitch
	status := &clusterStatus{o: m}
	if o.open(listener.Addr()) {
		slog.Warn("anybody who can connect may use the API: it is served to other hosts without a key; set --api-keys or --api-key", "listen", listener.Addr().String())
	}
	handler.set(api.Starting(m.starting, status, ring, o.allowedHosts(listener.Addr())))
	server := api.NewServer(&handler, api.ServerOptions{MaxConnections: total, MaxPerAddress: ofAddress, Certificate: certificate})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	running := false // a step or a request may still use the model
	stopServer := func(grace time.Duration) error {
		end, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			slog.Warn("some responses were cut short", "error", err)
			running = errors.Is(err, api.ErrStuck)
		}
		return <-done
	}
	m.heap = o.heap(m.memory.bytes)
	m.tokenizes = true
	l, err := m.load(ctx, log, o.engine.MaxActive+o.engine.Sessions)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, distributed.ErrClosed) {
			slog.Info("stopped before the server was ready", "error", err)
			err = nil // stopped by a user, here or at another rank
		}
		return errors.Join(err, stopServer(0))
	}
	defer func() {
		if !running {
			l.close()
		}
	}()
	var reports *rankReports
	if l.group != nil {
		reports = &rankReports{steps: l.group.steps}
	}
	e, c, err := o.engineOn(m, l, options, listener.Addr(), server, reports)
	if err != nil {
		return errors.Join(err, stopServer(0))
	}
	// The garbage collector keeps Go's memory within the plan.
	debug.SetMemoryLimit(l.heap)
	c.Keys, c.Audit, c.Cluster = ring, audit.Logger(), status
	if sender != nil {
		c.Traces, c.Collectors = sender, append(c.Collectors, sender.Collectors()...)
	}
	status.serves(l, reports)
	if l.group != nil {
		m.served.Store(&examined{e, l})
		watching, stop := context.WithCancel(ctx)
		defer stop()
		go watchSlowRanks(watching, l, reports)
	}
	handler.set(api.New(c))
	info := l.model.Info()
	urls := network.URLs(o.tls.scheme(), listener.Addr())
	if len(urls) > 1 {
		slog.Info("the server has several addresses", "urls", strings.Join(urls, " "))
	}
	slog.Info("ready", "url", urls[0], "model", info.Name, "context", info.ContextLength,
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
	o.disk.flush(e)
	if l.group != nil {
		l.group.leave(context.Cause(ctx)) // ends the current step
	}
	last, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	stuck := e.Close(last)
	running = running || stuck != nil
	if stuck != nil && l.group != nil {
		// A layer of a large model may take longer than groupGrace.
		slog.Warn("a step is still running at exit", "error", stuck)
		stuck = nil
	}
	return errors.Join(err, stuck)
}

// engineOn creates the engine of a loaded model and the configuration of its API;
// reports are nil without a group.
func (o *serveOptions) engineOn(m *modelOptions, l *loaded, options engine.Options, addr net.Addr, server *api.Server, reports *rankReports) (*engine.Engine, api.Config, error) {
	t := l.tokens
	format, err := chat.OfFile(o.format, l.file, t)
	if err != nil {
		return nil, api.Config{}, err
	}
	o.disk.keep(options.Disk, l, format.Name, t.Size())
	info := l.model.Info()
	if t.Size() != info.Vocab {
		slog.Warn("vocabulary and logits differ in size", "tokens", t.Size(), "logits", info.Vocab)
	}
	o.disk.use(options.Disk, m, l)
	timings := api.NewTimings()
	options.Observer = timings
	e, err := engine.New(l.model, t, options)
	if err != nil {
		return nil, api.Config{}, err
	}
	c := api.Config{
		Engine: api.FromEngine(e), Tokenizer: t,
		Model: api.Model{ID: o.modelName(m, info.Name), Aliases: o.names[min(1, len(o.names)):], Created: time.Now(),
			ContextLength: info.ContextLength, Fingerprint: m.systemFingerprint(l), Format: format,
			File: dialect.Describe(l.file, l.cpu == nil)},
		CORSOrigins: o.cors, Hosts: o.allowedHosts(addr), MaxBody: o.maxBody, StrictModelNames: o.strict, BodyBudget: o.bodies(),
		Replays: o.disk.replays, MaxGrammars: grammars(m.memory.bytes),
		// As much of that work is admitted as of the engine's.
		MaxTexts:   o.engine.MaxActive + o.engine.QueueLength,
		Collectors: slices.Concat(server.Collectors(), timings.Collectors(), []prometheus.Collector{buildInfo(l.kernels)}),
		Budgets:    budgets(server, l.atMost),
	}
	if reports != nil {
		c.Collectors = append(c.Collectors, newGroupMetrics(reports))
	}
	if l.group != nil {
		c.Collectors = append(c.Collectors, newFormingMetrics(l.group.steps, l.group.leader))
	}
	return e, c, nil
}

// buildInfo is the metric by which a dashboard tells builds apart.
func buildInfo(kernels string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringmaster_build_info",
		Help:        "1, with the build of rank 0: the revision of its source, the version of Go, what computes.",
		ConstLabels: prometheus.Labels{"version": program.Version(), "goversion": runtime.Version(), "kernels": kernels},
	}, func() float64 { return 1 })
}

// handlerSwitch is a handler that can be replaced while it serves.
type handlerSwitch struct{ now atomic.Pointer[http.Handler] }

func (s *handlerSwitch) set(h http.Handler) { s.now.Store(&h) }

// ServeHTTP calls the current handler.
func (s *handlerSwitch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.now.Load()).ServeHTTP(w, r)
}

// countOfRest is the most bytes with which safetext.Line counts what it has cut off.
const countOfRest = 40

// modelName is the name of the model in the API, one that requests may have.
func (o *serveOptions) modelName(m *modelOptions, inFile string) string {
	switch {
	case len(o.names) > 0:
		return o.names[0]
	case inFile != "":
		return inFile
	case m.path != "":
		return safetext.Line(strings.TrimSuffix(filepath.Base(m.path), ".gguf"), dialect.MaxModelName-countOfRest)
	}
	return builtin.Name
}

// allowedHosts are the accepted Host headers, as a defence against DNS rebinding;
// nil accepts any. On loopback, or with --allow-host on any address, these are
// the names given and the server's own: those of loopback and the address it
// listens on.
func (o *serveOptions) allowedHosts(addr net.Addr) []string {
	tcp, ok := addr.(*net.TCPAddr)
	loopback := ok && tcp.IP.IsLoopback()
	if slices.Contains(o.hosts, "*") || !loopback && len(o.hosts) == 0 {
		return nil
	}
	names := api.LoopbackHosts(o.hosts...)
	if ok && !loopback && !tcp.IP.IsUnspecified() {
		names = append(names, tcp.IP.String())
	}
	return names
}

// bodies is the most bytes of all bodies of requests that are being received and parsed.
func (o *serveOptions) bodies() int64 { return 2 * o.maxBody }

// open reports whether other hosts may use the API without a key.
func (o *serveOptions) open(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return len(o.keys) == 0 && o.keyFile == "" && !(ok && tcp.IP.IsLoopback())
}
