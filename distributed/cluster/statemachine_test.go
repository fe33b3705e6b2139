package cluster

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

var update = flag.Bool("update", false, "write what the state machine does into the transcripts")

// TestTranscripts plays the files of testdata. A line that begins with > is an
// event; the lines below it are all the actions of the state machine, in order.
// # begins a comment. Rank r joins as connection r unless the file says
// otherwise.
//
//	> group 3                          a leader of a group of 3 that waits for lost ranks
//	> group 3 continue 2               one that continues without them, with at least 2 ranks
//	> group 3 fail                     one that ends
//	> group 3 open                     one of at most 3 that awaits no one who never joined
//	> irreplaceable TEXT               no new process can take a lost rank's place, and why
//	> connect 1 10.0.0.2:4000          a connection
//	> hello 1 rank=1 size=2 …          its hello; fields not given match the leader's
//	> formed 1, connected 1            answers of a connection; 0 is the leader itself
//	> forms 1 2                        the whole forming of an epoch; 1 and 2 are the connections of its members
//	> prepared 2 TEXT                  connection 2 can join the epoch, or why it cannot
//	> brings                           the program brings something to ranks that have prepared
//	> bring 2 TEXT, taken 2 TEXT       to connection 2; it has taken it, or why not
//	> brought 2                        connection 2 has what it needs
//	> planned, plan-failed TEXT, started the leader's own answers
//	> planned 3                        the plan of epoch 3, which may be over
//	> work TEXT                        a piece of work
//	> done 1 7 a b c                   work 7 is done with this digest; - stands for what was not computed
//	> failed 1 TEXT, suspect 1 2 TEXT  rank 1 could not do its work; rank 1 suspects rank 2
//	> missing 2 unreachable 0,1 TEXT rank 2 gives up connecting to ranks 0 and 1; or: missing 2 late 0,1 TEXT
//	> drain 9 2                        a person asks on connection 9 that rank 2 leaves
//	> fits 9 2 TEXT                    the others can run the model without rank 2, or why not
//	> leave 1 TEXT, interrupt 1 TEXT   the rank exits; its user stops the whole group
//	> closed 1 TEXT                    the connection has ended
//	> after 500ms                      time passes, the connections send heartbeats
//	> silence 500ms 2                  time passes, all but connection 2 send heartbeats
//	> silent 500ms                     time passes, no connection sends any
//	> slept 12s                        the leader did not run for so long
//	> stale 1 7, sends 1               done of the previous epoch; a message that only the leader sends
//	> shutdown TEXT                    the user ends the group
//	> state                            what a request would be told
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			got := play(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(f, []byte(got), 0o644))
			}
			require.Equal(t, string(text), got)
		})
	}
}

// play runs a transcript and returns it with the actual actions.
func play(t *testing.T, text string) string {
	var out strings.Builder
	p := &player{}
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "> "):
			fmt.Fprintln(&out, line)
			for _, s := range p.event(t, strings.Fields(line[2:])) {
				fmt.Fprintln(&out, s)
			}
		case line == "", strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

type player struct {
	m *stateMachine
}

func testHello(rank, size int) Hello {
	return Hello{Rank: rank, Size: size, Build: "v1", ByteOrder: "little", Model: "m.gguf", Fingerprint: "fa11ce5",
		Program: "9a5e", Platform: "linux/amd64", Commit: "c0ffee", Weights: "3e197", Math: "fa57", Kernels: "cpu avx2", Data: fmt.Sprintf("10.0.0.%d:7000", rank+1)}
}

func (p *player) event(t *testing.T, words []string) (lines []string) {
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		require.NoError(t, err, words)
		return n
	}
	rest := func(i int) string { return strings.Join(words[i:], " ") }
	m := p.m
	// answer is what rank 0 does by itself, or the message that a connection brings.
	answer := func(own func(), msg message) {
		if number(1) == 0 {
			own()
		} else {
			m.receive(number(1), msg)
		}
	}
	switch words[0] {
	case "group":
		n := number(1)
		p.m = newStateMachine(params{self: testHello(0, n), groupID: "g", describe: func(i int) string { return fmt.Sprintf("layer %d", i) },
			joinTimeout: 60 * time.Second, peerTimeout: 4 * time.Second, loadTimeout: 600 * time.Second, connectTimeout: 10 * time.Second,
			workTimeout: 300 * time.Second, grace: 400 * time.Millisecond, retryPause: time.Second, onLoss: Await, minRanks: 1,
			recoverLimit: 120 * time.Second, failPause: 30 * time.Second, rejoinAfter: 600 * time.Second, drainTimeout: 30 * time.Second})
		m = p.m
		if m.open = len(words) > 2 && words[2] == "open"; m.open {
			m.onLoss = Continue
		} else if len(words) > 2 {
			policy, err := ParseOnLoss(words[2])
			require.NoError(t, err)
			m.onLoss = policy
		}
		if len(words) > 3 {
			m.minRanks = number(3)
		}
		m.form()
	case "irreplaceable":
		m.irreplaceable = rest(1)
	case "connect":
		m.connected(number(1), words[2])
	case "hello":
		h := testHello(number(1), m.self.Size)
		numbers := map[string]*int{"rank": &h.Rank, "size": &h.Size}
		texts := map[string]*string{"fingerprint": &h.Fingerprint, "model": &h.Model, "build": &h.Build, "kernels": &h.Kernels,
			"math": &h.Math, "weights": &h.Weights, "program": &h.Program, "platform": &h.Platform, "commit": &h.Commit, "process": &h.Process, "host": &h.Host}
		for _, w := range words[2:] {
			k, v, _ := strings.Cut(w, "=")
			if n := numbers[k]; n != nil {
				*n, _ = strconv.Atoi(v)
				continue
			}
			require.Contains(t, texts, k)
			*texts[k] = v
		}
		m.receive(number(1), message{Kind: kindHello, Hello: &h})
	case "planned":
		epoch := m.epoch
		if len(words) > 1 {
			epoch = uint32(number(1))
		}
		m.planned(epoch, []byte("plan"), []byte("token"))
	case "plan-failed":
		m.planFailed(m.epoch, rest(1))
	case "formed", "connected":
		k := map[string]kind{"formed": kindFormed, "connected": kindConnected}[words[0]]
		answer(func() { m.selfAnswered(m.epoch, k) }, message{Kind: k, Epoch: m.epoch})
	case "started":
		m.started(m.epoch)
	case "forms":
		m.planned(m.epoch, []byte("plan"), []byte("token"))
		for _, k := range []kind{kindFormed, kindConnected} {
			m.selfAnswered(m.epoch, k)
			for i := range words[1:] {
				m.receive(number(i+1), message{Kind: k, Epoch: m.epoch})
			}
		}
		m.started(m.epoch)
	case "prepared":
		m.receive(number(1), message{Kind: kindPrepared, Epoch: m.epoch, Reason: rest(2)})
	case "brings":
		m.brings = true
	case "bring":
		if !m.waits(number(1), m.epoch) {
			return []string{"it does not wait"}
		}
		m.bring(number(1), m.epoch, []byte(rest(2)))
	case "taken":
		m.receive(number(1), message{Kind: kindTaken, Epoch: m.epoch, Reason: rest(2)})
	case "brought":
		m.brought(number(1), m.epoch)
	case "work":
		if _, err := m.begin(m.epoch, []byte(rest(1))); err != nil {
			lines = append(lines, "refused: "+err.Error())
		}
	case "done":
		var d Digest
		for _, w := range words[3:] {
			if w == "-" { // not computed
				d = append(d, NotComputed)
			} else {
				d = append(d, uint32(w[0]))
			}
		}
		n := uint64(number(2))
		answer(func() { m.done(0, n, d) }, message{Kind: kindDone, Epoch: m.epoch, Number: n, Digest: d})
	case "failed":
		answer(func() { m.failed(0, m.epoch, rest(2), nil) }, message{Kind: kindFailed, Epoch: m.epoch, Reason: rest(2)})
	case "missing":
		by := number(1)
		if c := m.conns[by]; c != nil {
			by = c.rank
		}
		var missing []distributed.Unconnected
		for _, w := range strings.Split(words[3], ",") {
			peer, err := strconv.Atoi(w)
			require.NoError(t, err)
			missing = append(missing, distributed.Unconnected{Rank: peer, Dialled: peer < by, Unreachable: words[2] == "unreachable", Cause: fmt.Sprintf("rank %d: %s", peer, rest(4))})
		}
		answer(func() { m.failed(0, m.epoch, "cannot connect", missing) },
			message{Kind: kindFailed, Epoch: m.epoch, Reason: "cannot connect", Missing: missing})
	case "suspect":
		desync := strings.HasPrefix(rest(3), "ranks run different operations")
		answer(func() { m.suspect(0, m.epoch, number(2), rest(3), desync) },
			message{Kind: kindSuspect, Epoch: m.epoch, Peer: number(2), Reason: rest(3), Desync: desync})
	case "drain":
		m.receive(number(1), message{Kind: kindDrain, Peer: number(2)})
	case "fits":
		m.fitAnswered(number(1), number(2), rest(3))
	case "leave", "interrupt":
		m.receive(number(1), message{Kind: kindLeave, Reason: rest(2), All: words[0] == "interrupt"})
	case "stale": // an answer of the previous epoch
		m.receive(number(1), message{Kind: kindDone, Epoch: m.epoch - 1, Number: uint64(number(2))})
	case "sends": // a message that only the leader sends
		m.receive(number(1), message{Kind: kindRun, Epoch: m.epoch})
	case "closed":
		m.closed(number(1), rest(2))
	case "after", "silence", "silent":
		d, err := time.ParseDuration(words[1])
		require.NoError(t, err)
		for end := m.now + d; m.now < end; {
			for id := range m.conns {
				if words[0] == "after" || words[0] == "silence" && id != number(2) {
					m.receive(id, message{Kind: kindHeartbeat})
				}
			}
			m.tick(min(m.now+100*time.Millisecond, end))
		}
	case "slept":
		d, err := time.ParseDuration(words[1])
		require.NoError(t, err)
		m.slept(d)
	case "shutdown":
		m.stop(rest(1), true)
	case "state":
		epoch, err := m.status()
		switch {
		case err != nil && m.recovering():
			return []string{fmt.Sprintf("epoch %d, recovering: %v", epoch, err)}
		case err != nil:
			return []string{fmt.Sprintf("epoch %d: %v", epoch, err)}
		}
		return []string{fmt.Sprintf("epoch %d runs", epoch)}
	default:
		require.Fail(t, "unknown event "+words[0])
	}
	for _, a := range m.take() {
		lines = append(lines, a.String())
	}
	return lines
}

// TestWhatIsCompared: only NotComputed is left out of a comparison; a rank that should have
// computed something and reports 0 differs.
func TestWhatIsCompared(t *testing.T) {
	m := &stateMachine{params: params{describe: func(i int) string { return fmt.Sprint("position ", i) }}}
	for _, c := range []struct {
		a, b Digest
		at   int
		same bool
	}{
		{Digest{1, 2}, Digest{1, 2}, -1, true},
		{Digest{1, 2}, Digest{1, 0}, 1, false},
		{Digest{0, 2}, Digest{1, 2}, 0, false},
		{Digest{NotComputed, 2}, Digest{1, 2}, -1, true},
		{Digest{1, 2}, Digest{1, NotComputed}, -1, true},
		{Digest{1, 2}, Digest{1}, -1, false},
	} {
		_, at, same := m.firstDifference(c.a, c.b)
		require.Equal(t, c.same, same, "%v %v", c.a, c.b)
		require.Equal(t, c.at, at, "%v %v", c.a, c.b)
	}
}
