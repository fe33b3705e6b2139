package gather

import (
	"log/slog"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/tcp"
	"ringmaster/node"
)

// A copy of the model is a group of two: the leading host is rank 0, the host that lacks files
// rank 1.

// copyWait is how long a copy waits for the other side, and copyWork how long one piece may
// take: half a GiB, at 15 Mbit/s.
const (
	copyWait = 30 * time.Second
	copyWork = 5 * time.Minute
)

// copyConfig is that of a rank of a copy. It logs nothing, because its ranks are not those of
// the group that people know; what fails is returned.
func copyConfig(rank int, coordinator string, key []byte, encrypt node.Encryption) cluster.Config {
	two := node.Group{Rank: rank, Size: 2}
	return cluster.Config{Hello: two.Hello(), Coordinator: coordinator, Key: key, Encrypt: encrypt.TCP(), Transport: tcp.New(tcp.Options{Encrypt: encrypt.TCP()}),
		ConnectTimeout: copyWait, WorkTimeout: copyWork, Log: slog.New(slog.DiscardHandler)}
}

// silent reports nothing; the host that gets the files shows their progress.
type silent struct{}

func (silent) Begin(string, int64, int64) {}
func (silent) Add(int64)                  {}
func (silent) End()                       {}
func (silent) Say(string)                 {}
