package gather

import (
	"errors"
	"fmt"
	"path/filepath"

	"ringmaster/groupplan"
	"ringmaster/internal/pairing"
)

// What a host and the desk say once both have proved themselves. The host asks, the desk
// answers; state has no answer.
const (
	msgApply   = 1  // host: application
	msgTicket  = 2  // desk: ticket
	msgRefusal = 3  // desk: refusal, to any request
	msgEcho    = 4  // host, and the same from the desk
	msgLoad    = 5  // host: load, answered by that many msgData
	msgData    = 6  // desk: probeFrame bytes
	msgCopy    = 7  // host: copying, asks for the model's files
	msgPort    = 8  // desk: port at which a copy waits
	msgState   = 9  // host: state
	msgPaths   = 10 // host: found
	msgUse     = 11 // desk: use, the answer to msgPaths, and later when all must use another address
)

// application is what a host says of itself.
type application struct {
	Host string `json:"host"` // random, the same whenever the host returns
	Name string `json:"name"` // of the host, for people
}

// modelFile is a file of the group's model.
type modelFile struct {
	Name string `json:"name"` // without directory
	Size int64  `json:"size"` // bytes
}

// ticket is all that a host needs to be a rank.
type ticket struct {
	Rank     int                 `json:"rank"`
	Size     int                 `json:"size"` // most ranks
	Key      []byte              `json:"key"`  // of the group
	Port     int                 `json:"port"` // of the coordinator
	Desk     int                 `json:"desk"` // port of the desk
	Addrs    []offer             `json:"addrs"`
	Settings map[string][]string `json:"settings,omitempty"`
	Files    []modelFile         `json:"files,omitempty"` // of the model; none: the built-in one
}

// offer is an address of the desk's host, without zone, and the number of its network there.
type offer struct {
	Addr string `json:"addr"`
	Link int    `json:"link"`
}

// Bounds of a ticket.
const (
	mostAddrs    = 16
	mostSettings = 64
	mostFiles    = 4096
	leastKey     = 16 // bytes
)

// check validates a ticket: it comes from another host.
func (t *ticket) check() error {
	switch {
	case t.Size < 2 || t.Size > groupplan.MaxRanks || t.Rank < 1 || t.Rank >= t.Size:
		return fmt.Errorf("the group gives this host rank %d of %d", t.Rank, t.Size)
	case len(t.Key) < leastKey:
		return errors.New("the group gives no key")
	case t.Port < 1 || t.Port > 65535 || t.Desk < 1 || t.Desk > 65535:
		return fmt.Errorf("the group gives the ports %d and %d", t.Port, t.Desk)
	case len(t.Addrs) > mostAddrs || len(t.Settings) > mostSettings || len(t.Files) > mostFiles:
		return errors.New("the group gives too many addresses, settings or files")
	}
	for _, f := range t.Files {
		if f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." || f.Size < 1 {
			return fmt.Errorf("the group has a model file %q of %d bytes", f.Name, f.Size)
		}
	}
	return nil
}

// refusal is why the desk does not do what was asked.
type refusal struct {
	Reason string `json:"reason"`
}

// load asks for bytes to measure a path with.
type load struct {
	Frames int `json:"frames"`
}

// probeFrame is the length of one of those messages; a desk sends at most mostFrames for one
// request.
const (
	probeFrame = 64 << 10
	mostFrames = 256
)

// copying asks for the model's files at an address of the desk's host.
type copying struct {
	Addr string `json:"addr"`
}

// port is where a copy waits for its other rank.
type port struct {
	Port int `json:"port"`
}

// state is what a host does: it prepares to be a rank, or is one.
type state struct {
	Doing  string `json:"doing,omitempty"` // for people
	Seated bool   `json:"seated,omitempty"`
}

// found is which addresses of the desk's host work, and how fast.
type found struct {
	Rates map[string]float64 `json:"rates"`          // bytes/s by address, without zone
	Uses  string             `json:"uses,omitempty"` // that the host uses already
}

// use is the address that a host is to use.
type use struct {
	Addr  string `json:"addr"`
	Alone bool   `json:"alone,omitempty"` // no address works for all hosts
}

// refuse answers a request that the desk does not fulfil.
func refuse(c *pairing.Conn, err error) error {
	return c.Send(msgRefusal, refusal{err.Error()})
}
