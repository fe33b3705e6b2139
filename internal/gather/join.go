package gather

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"ringmaster/internal/fanout"
	"ringmaster/internal/pairing"
	"ringmaster/internal/pull"
	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

// JoinOptions configure a host that joins a group.
type JoinOptions struct {
	Host  string // that leads the group, HOST or HOST:PORT; "" finds it
	Group string // name or fingerprint; "" for the only one
	Code  string // "" asks for it, unless this host has joined the group before
	Dir   string // where its key is kept, from StateDir
	Model string // this host's file of the model; "" copies it from the group
	Files string // directory of the copy
	// Ask asks the person at the terminal; nil if there is none.
	Ask    func(ctx context.Context, question string) (string, error)
	Out    io.Writer // for people
	Report pull.Reporter
}

// Seat is the place of a host in a group.
type Seat struct {
	Group       pairing.Group
	Rank, Size  int
	Coordinator string // HOST:PORT
	KeyFile     string
	Settings    map[string][]string // flags that all ranks must have alike
	Model       string              // "" for the built-in one

	joiner *joiner
	member *membership
	port   int // of the coordinator
	desk   int // its port
	paths  []path
	used   int // index of the path
	conn   *pairing.Conn
}

// membership is what a host keeps of a group that it joined.
type membership struct {
	Group pairing.Group `json:"group"`
	Host  string        `json:"host"` // by which the group knows this host
	Key   []byte        `json:"key"`
	Desks []string      `json:"desks"` // HOST:PORT, where the group was
}

// Join finds the group, takes a seat in it and gets its model.
func Join(ctx context.Context, o JoinOptions) (Seat, error) {
	if o.Code != "" && !pairing.WellFormed(o.Code) {
		return Seat{}, usage.Errorf("--code %q: expected a code such as 4KQ-M2X, as 'ringmaster up' shows it", safetext.Line(o.Code, mostHostName))
	}
	j := &joiner{JoinOptions: o}
	if err := j.known(); err != nil {
		return Seat{}, err
	}
	t, err := j.find(ctx)
	if err != nil {
		return Seat{}, err
	}
	return j.sit(ctx, t)
}

// joiner is one Join.
type joiner struct {
	JoinOptions
	joined []membership
}

// target is a group, and where it may be.
type target struct {
	group pairing.Group
	addrs []string // HOST:PORT
}

// known reads the groups that this host has joined before.
func (j *joiner) known() error {
	paths, err := filepath.Glob(filepath.Join(j.Dir, "joined", "*.json"))
	if err != nil {
		return err
	}
	for _, p := range paths {
		var m membership
		if err := readState(p, &m); err != nil {
			return err
		}
		if m.Group.Valid() && len(m.Key) >= leastKey {
			j.joined = append(j.joined, m)
		}
	}
	return nil
}

// membership returns what is known of a group, nil if this host never joined it.
func (j *joiner) membership(g pairing.Group) *membership {
	for i := range j.joined {
		if j.joined[i].Group.ID == g.ID {
			return &j.joined[i]
		}
	}
	return nil
}

// statePath is the file of a membership, without what tells its two files apart.
func (j *joiner) statePath(g pairing.Group) string {
	return filepath.Join(j.Dir, "joined", g.Fingerprint())
}

// sit takes a seat in a group.
func (j *joiner) sit(ctx context.Context, t target) (Seat, error) {
	m := j.membership(t.group)
	proof := pairing.Proof{Code: j.Code}
	switch {
	case j.Code == "" && m != nil:
		proof = pairing.Proof{Key: m.Key}
	case j.Code == "":
		code, err := j.askCode(ctx, t.group)
		if err != nil {
			return Seat{}, err
		}
		proof.Code = code
	}
	c, err := j.dial(ctx, t, proof)
	if err != nil {
		return Seat{}, err
	}
	seat, err := j.seat(ctx, c, t.group, m)
	if err != nil {
		c.Close()
	}
	return seat, err
}

// seat takes a seat over a connection.
func (j *joiner) seat(ctx context.Context, c *pairing.Conn, g pairing.Group, m *membership) (Seat, error) {
	if m == nil {
		m = &membership{Host: rand.Text()}
	}
	m.Group = g
	k, err := apply(ctx, c, m)
	if err != nil {
		return Seat{}, err
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return Seat{}, err
	}
	s := Seat{Group: g, Rank: k.Rank, Size: k.Size, KeyFile: j.statePath(g) + ".key", Settings: k.Settings,
		joiner: j, member: m, port: k.Port, desk: k.Desk, conn: c}
	// At once, so that a host that is stopped below gets no second rank when it is back.
	if err := s.keep(&k, host); err != nil {
		return Seat{}, err
	}
	if err := c.Send(msgState, state{Doing: "tries the networks"}); err != nil {
		return Seat{}, err
	}
	s.paths = prove(ctx, candidates(k.Addrs, host, upInterfaces()), k.Desk, g, k.Key)
	if err := s.choose(ctx, ""); err != nil {
		return Seat{}, err
	}
	fmt.Fprintf(j.Out, "Networks: %s.\n", describe(s.paths, s.used))
	fmt.Fprintf(j.Out, "Joined the group %v as rank %d.\n", g, k.Rank)
	s.Model, err = j.model(ctx, c, &k, s.addr())
	return s, err
}

// keep writes what this host needs to return. used is an address of the group that works.
func (s *Seat) keep(k *ticket, used string) error {
	m := s.member
	m.Key, m.Desks = k.Key, []string{net.JoinHostPort(used, strconv.Itoa(k.Desk))}
	for _, a := range k.Addrs {
		if d := net.JoinHostPort(a.Addr, strconv.Itoa(k.Desk)); !slices.Contains(m.Desks, d) {
			m.Desks = append(m.Desks, d)
		}
	}
	if err := replace(s.KeyFile, append(slices.Clone(k.Key), '\n')); err != nil {
		return err
	}
	return writeState(s.joiner.statePath(s.Group)+".json", m)
}

// apply asks for a seat.
func apply(ctx context.Context, c *pairing.Conn, m *membership) (ticket, error) {
	name, _ := os.Hostname() // for people
	if err := c.Send(msgApply, application{Host: m.Host, Name: name}); err != nil {
		return ticket{}, err
	}
	text, err := receive(ctx, c, msgTicket)
	if err != nil {
		return ticket{}, err
	}
	k, err := pairing.Read[ticket](text)
	if err == nil {
		err = k.check()
	}
	return k, err
}

// askCode asks a person for the code.
func (j *joiner) askCode(ctx context.Context, g pairing.Group) (string, error) {
	if j.Ask == nil {
		return "", usage.Errorf("--code is missing: 'ringmaster up' of the group %v shows it", g)
	}
	for range 3 {
		code, err := j.Ask(ctx, fmt.Sprintf("Code of the group %v, as 'ringmaster up' shows it: ", g))
		if err != nil {
			return "", err
		}
		if pairing.WellFormed(code) {
			return code, nil
		}
		fmt.Fprintln(j.Out, "A code has 6 letters and digits, without 0, 1, I and O.")
	}
	return "", usage.Errorf("no code was given")
}

// dial proves this host at the first address of a group that answers. The code is tried once,
// because the group counts attempts.
func (j *joiner) dial(ctx context.Context, t target, proof pairing.Proof) (*pairing.Conn, error) {
	type answer struct {
		addr string
		err  error
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(t.addrs))
	for _, a := range t.addrs {
		go func() {
			g, err := pairing.Identify(asking, a)
			if err == nil && g.ID != t.group.ID {
				err = fmt.Errorf("%s is of the group %v", a, g)
			}
			answers <- answer{a, err}
		}()
	}
	var failed []error
	for range t.addrs {
		x := <-answers
		if x.err == nil {
			c, _, err := pairing.Dial(ctx, x.addr, t.group.ID, proof)
			return c, err
		}
		failed = append(failed, x.err)
	}
	return nil, fmt.Errorf("the group %v does not answer: %w", t.group, errors.Join(failed...))
}

// model returns this host's file of the model. It copies the files that it lacks.
func (j *joiner) model(ctx context.Context, c *pairing.Conn, k *ticket, addr string) (string, error) {
	switch {
	case len(k.Files) == 0 && j.Model != "":
		return "", usage.Errorf("--model %s: the group runs the built-in model; leave the flag out", j.Model)
	case len(k.Files) == 0 || j.Model != "":
		return j.Model, nil
	}
	first := filepath.Join(j.Files, k.Files[0].Name)
	if whole(j.Files, k.Files) {
		return first, nil // the group compares it with its own
	}
	if err := c.Send(msgCopy, copying{plainAddr(addr)}); err != nil {
		return "", err
	}
	text, err := receive(ctx, c, msgPort)
	if err != nil {
		return "", err
	}
	p, err := pairing.Read[port](text)
	if err != nil {
		return "", err
	}
	cfg := copyConfig(1, net.JoinHostPort(addr, strconv.Itoa(p.Port)), k.Key, encryption(k.Settings))
	stop := keepSaying(ctx, c, state{Doing: "copies the model"})
	_, err = fanout.Follow(ctx, cfg, j.Files, j.Report)
	stop()
	if err != nil {
		return "", fmt.Errorf("copying the model from the group: %w; run the same command again to resume", err)
	}
	return first, nil
}

// encryption is what the group's settings say of it.
func encryption(settings map[string][]string) node.Encryption {
	for _, v := range settings[EncryptSetting] {
		if e, err := node.ParseEncryption(v); err == nil {
			return e
		}
	}
	return node.NoEncryption
}

// EncryptSetting is the flag that says whether ranks encrypt, one of LeadOptions.Settings.
const EncryptSetting = "cluster-encrypt"

// keepSaying tells the desk every few seconds what this host does, until the result is called.
func keepSaying(ctx context.Context, c *pairing.Conn, what state) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(sayEvery)
		defer t.Stop()
		for c.Send(msgState, what) == nil {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// whole reports whether all files are there with the sizes that the group has.
func whole(dir string, files []modelFile) bool {
	for _, f := range files {
		info, err := os.Stat(filepath.Join(dir, f.Name))
		if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
			return false
		}
	}
	return true
}
