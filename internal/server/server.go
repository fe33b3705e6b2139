// Package server serves a model over HTTP: a node with its engine, the API, the prefix cache
// on disk, keys, metrics and the page of the cluster.
package server

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

	"ringmaster/api"
	"ringmaster/api/dialect"
	"ringmaster/api/keys"
	"ringmaster/api/web"
	"ringmaster/distributed"
	"ringmaster/distributed/accept"
	"ringmaster/engine"
	"ringmaster/internal/network"
	"ringmaster/internal/program"
	"ringmaster/internal/safetext"
	"ringmaster/internal/traces"
	"ringmaster/internal/usage"
	"ringmaster/model/chat"
	"ringmaster/node"
)

// shutdownGrace is how long requests in progress may continue after a signal.
const shutdownGrace = 10 * time.Second

// Options of a server.
type Options struct {
	Listen  string       // HOST:PORT
	Names   []string     // of the model; none: that of the file
	Strict  bool         // requests for a model of any other name are refused
	Format  string       // of conversations; auto: the file decides
	Keys    keys.Options // none: every request is served, because no key is required
	Audit   string       // file of the audit log; empty: none
	CORS    []string
	Hosts   []string // that requests may name
	MaxBody int64
	TLS     TLS

	Connections           int // most of all clients, 0 for the default
	ConnectionsPerAddress int

	Engine engine.Options // of its limits 0 is none
	Disk   Disk
	Drafts Drafts

	// Greeting gets three lines for a person once the server is ready; nil: none.
	Greeting io.Writer
	Started  func(*node.Node) // told of the node before it starts; may be nil
}

// Limits is what the limits of the scheduler mean to the engine, to which 0 is the default
// and -1 none; here 0 is none.
func Limits(e engine.Options) engine.Options {
	for _, n := range []*int{&e.QueueLength, &e.CacheEntries} {
		if *n == 0 {
			*n = -1
		}
	}
	for _, d := range []*time.Duration{&e.CacheTimeout, &e.TokenLatency} {
		if *d == 0 {
			*d = -1
		}
	}
	return e
}

// Run starts a node, which leads the group if there is one, and serves its model until ctx
// ends. It listens before it loads the model, because a wrong address should show at once.
func Run(ctx context.Context, o Options, nodeOptions node.Options) (err error) {
	defer accept.Hold()()
	if err := o.check(); err != nil {
		return err
	}
	nodeOptions.Block = o.Drafts.Block
	options := Limits(o.Engine)
	ring, err := o.ring()
	if err != nil {
		return err
	}
	audit, err := api.OpenAudit(o.Audit)
	if err != nil {
		return usage.Errorf("--audit-log: %w", err)
	}
	defer audit.Close()
	certificate, err := o.TLS.load()
	if err != nil {
		return usage.Wrap(err)
	}
	sender, err := traces.Open(ctx, traces.Options{Version: program.Version()})
	if err != nil {
		return usage.Wrap(err)
	}
	defer sender.Close()
	disk, err := o.Disk.open()
	if err != nil {
		return err
	}
	defer disk.close()
	options.Disk = disk.store
	if disk.dir != "" {
		nodeOptions.Portable = true
		nodeOptions.Popularity = filepath.Join(disk.dir, "experts.json")
	}
	listener, err := network.Listen(ctx, o.Listen, net.KeepAliveConfig{}, nil)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	nodeOptions.Heap, nodeOptions.Tokenizes, nodeOptions.Sequences = o.Heap(nodeOptions.Memory), true, o.Engine.PlannedSequences()
	if nodeOptions.Group != nil {
		nodeOptions.Group.Examined = true
		if sender != nil {
			nodeOptions.Group.Formed = sender.Formed
		}
	}
	n := node.New(nodeOptions)
	if o.Started != nil {
		o.Started(n)
	}
	var handler handlerSwitch
	status := &clusterStatus{node: n, grouped: nodeOptions.Group != nil}
	if o.open(listener.Addr()) {
		slog.Warn("anybody who can connect may use the API: it is served to other hosts without a key; set --api-keys or --api-key", "listen", listener.Addr().String())
	}
	handler.set(api.Starting(n.Progress, status, ring, o.allowedHosts(listener.Addr())))
	server := api.NewServer(&handler, api.ServerOptions{MaxConnections: o.Connections, MaxPerAddress: o.ConnectionsPerAddress, Certificate: certificate})
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
	if err := n.Start(ctx); err != nil {
		if ctx.Err() != nil || errors.Is(err, distributed.ErrClosed) {
			slog.Info("stopped before the server was ready", "error", err)
			err = nil // stopped by a user, here or at another rank
		}
		return errors.Join(err, stopServer(0))
	}
	defer func() {
		if !running {
			n.Close()
		}
	}()
	e, c, err := o.engineOn(n, nodeOptions, options, disk, listener.Addr(), server)
	if err != nil {
		return errors.Join(err, stopServer(0))
	}
	// The garbage collector keeps Go's memory within the plan.
	debug.SetMemoryLimit(n.Heap)
	c.Keys, c.Audit, c.Cluster, c.History = ring, audit.Logger(), status, new(web.History)
	if sender != nil {
		c.Traces, c.Collectors = sender, append(c.Collectors, sender.Collectors()...)
	}
	status.serving.Store(true)
	sampling, stopSampling := context.WithCancel(ctx)
	defer stopSampling()
	go status.sample(sampling, e, c.History)
	if n.Leader != nil {
		n.Serves(e.Between)
		watching, stop := context.WithCancel(ctx)
		defer stop()
		go n.Leader.WatchSlowRanks(watching)
		go n.KeepChosen(watching)
	}
	handler.set(api.New(c))
	info := n.Model.Info()
	urls := network.URLs(o.TLS.scheme(), listener.Addr())
	if len(urls) > 1 {
		slog.Info("the server has several addresses", "urls", strings.Join(urls, " "))
	}
	start := []any{"url", urls[0], "model", info.Name, "context", info.ContextLength,
		"threads", n.Threads, "backend", n.Backend.Name(), "load", n.Took.Round(time.Millisecond)}
	if n.Leader != nil {
		if expected := n.Leader.Planner.Expected(); expected != "" {
			start = append(start, "expected", expected)
		}
	}
	slog.Info("ready", start...)
	if o.Greeting != nil {
		if _, err := io.WriteString(o.Greeting, greeting(n, o.ModelName(nodeOptions.File, info.Name), urls[0])); err != nil {
			slog.Warn("the addresses could not be printed", "error", err)
		}
	}

	grace, groupEnded := shutdownGrace, make(<-chan struct{})
	if n.Leader != nil {
		grace, groupEnded = node.Grace/2, n.Leader.Done()
	}
	select {
	case err = <-done:
		done <- nil
	case <-groupEnded:
		err = n.Leader.Err()
	case <-ctx.Done():
		slog.Info("shutting down", "grace", grace)
	}
	err = errors.Join(err, stopServer(grace))
	disk.flush(e)
	if n.Leader != nil {
		n.Leader.Leave(context.Cause(ctx)) // ends the current step
	}
	last, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	stuck := e.Close(last)
	running = running || stuck != nil
	if stuck != nil && n.Leader != nil {
		// A layer of a large model may take longer than node.Grace.
		slog.Warn("a step is still running at exit", "error", stuck)
		stuck = nil
	}
	return errors.Join(err, stuck)
}

// engineOn creates the engine of a node and the configuration of its API.
func (o *Options) engineOn(n *node.Node, nodeOptions node.Options, options engine.Options, disk *cacheDir, addr net.Addr, server *api.Server) (*engine.Engine, api.Config, error) {
	t := n.Tokens
	format, err := chat.OfFile(o.Format, n.File, t)
	if err != nil {
		return nil, api.Config{}, err
	}
	disk.keep(n, format.Name)
	info := n.Model.Info()
	if t.Size() != info.Vocab {
		slog.Warn("vocabulary and logits differ in size", "tokens", t.Size(), "logits", info.Vocab)
	}
	disk.use(n)
	timings := api.NewTimings()
	options.Observer = timings
	o.Drafts.apply(&options, n)
	e, err := engine.New(n.Model, t, options)
	if err != nil {
		return nil, api.Config{}, err
	}
	c := api.Config{
		Engine: api.FromEngine(e), Tokenizer: t,
		Model: api.Model{ID: o.ModelName(nodeOptions.File, info.Name), Aliases: o.Names[min(1, len(o.Names)):], Created: time.Now(),
			ContextLength: info.ContextLength, Fingerprint: n.Fingerprint(), Format: format,
			File: dialect.Describe(n.File, n.CPU == nil)},
		CORSOrigins: o.CORS, Hosts: o.allowedHosts(addr), MaxBody: o.MaxBody, StrictModelNames: o.Strict, BodyBudget: o.bodies(),
		Replays: disk.replays, MaxGrammars: grammars(nodeOptions.Memory),
		// As much of that work is admitted as of the engine's.
		MaxTexts:   o.Engine.MaxActive + o.Engine.QueueLength,
		Collectors: slices.Concat(server.Collectors(), timings.Collectors(), []prometheus.Collector{buildInfo(n.Kernels)}, tableMetrics(n.Model)),
		Budgets:    budgets(server, n.AtMost),
	}
	if n.Leader != nil {
		c.Collectors = append(c.Collectors, newGroupMetrics(n.Leader, n.Chosen), newFormingMetrics(n.Leader))
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

// ModelName is the name of the model in the API, one that requests may have.
func (o *Options) ModelName(f node.File, inFile string) string {
	switch {
	case len(o.Names) > 0:
		return o.Names[0]
	case inFile != "":
		return inFile
	case f.Path != "":
		return safetext.Line(strings.TrimSuffix(filepath.Base(f.Path), ".gguf"), dialect.MaxModelName-countOfRest)
	}
	return f.Name()
}

// allowedHosts are the accepted Host headers, as a defence against DNS rebinding;
// nil accepts any. On loopback, or with --allow-host on any address, these are
// the names given and the server's own: those of loopback and the address it
// listens on.
func (o *Options) allowedHosts(addr net.Addr) []string {
	tcp, ok := addr.(*net.TCPAddr)
	loopback := ok && tcp.IP.IsLoopback()
	if slices.Contains(o.Hosts, "*") || !loopback && len(o.Hosts) == 0 {
		return nil
	}
	names := api.LoopbackHosts(o.Hosts...)
	if ok && !loopback && !tcp.IP.IsUnspecified() {
		names = append(names, tcp.IP.String())
	}
	return names
}

// bodies is the most bytes of all bodies of requests that are being received and parsed. A
// host with little memory lowers both by --max-body.
func (o *Options) bodies() int64 { return 2 * o.MaxBody }

// open reports whether other hosts may use the API without a key.
func (o *Options) open(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return len(o.Keys.Given) == 0 && o.Keys.File == "" && !(ok && tcp.IP.IsLoopback())
}
