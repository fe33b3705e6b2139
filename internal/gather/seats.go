package gather

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ringmaster/groupplan"
	"ringmaster/internal/pairing"
	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
)

// seats are the ranks of a group that this host leads, and what they have in common. A host
// that returns gets the rank that it had.
type seats struct {
	path string

	mu    sync.Mutex // guards the rest
	saved savedGroup
}

// savedGroup is the file of a group.
type savedGroup struct {
	Group pairing.Group `json:"group"`
	Hosts []seat        `json:"hosts"`
}

// seat is a host that has a rank other than 0.
type seat struct {
	Host string    `json:"host"`
	Name string    `json:"name"`
	Rank int       `json:"rank"`
	Last time.Time `json:"last"` // when it last asked to join
}

const (
	groupFile   = "group.json"
	keyFileName = "cluster.key"
)

// openSeats reads the group in dir, or makes one with a name.
func openSeats(dir, name string) (*seats, error) {
	s := &seats{path: filepath.Join(dir, groupFile)}
	err := readState(s.path, &s.saved)
	if errors.Is(err, os.ErrNotExist) {
		s.saved = savedGroup{Group: pairing.NewGroup(name)}
		err = writeState(s.path, s.saved)
	}
	if err == nil && !s.saved.Group.Valid() {
		err = fmt.Errorf("%s is not the file of a group: remove it to make another group", s.path)
	}
	if err == nil && s.saved.Group.Name != name { // names that differ may be one name of a directory
		err = usage.Errorf("--group %s: %s is of the group %v: choose another name", name, s.path, s.saved.Group)
	}
	return s, err
}

// groupKey returns the path of the key of the group in dir, which it makes if there is none.
func groupKey(dir string) (string, error) {
	path := filepath.Join(dir, keyFileName)
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		var key [32]byte
		rand.Read(key[:]) // never fails
		err = replace(path, []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"))
	}
	return path, err
}

// errFull: there is no rank for another host.
var errFull = fmt.Errorf("the group has %d hosts, as many as it can have: stop one of them first", groupplan.MaxRanks)

// take gives a host its rank: the one that it had, else the first that is free, else that of
// the host that is away for longest. present reports whether the host of a rank is connected.
func (s *seats) take(a application, now time.Time, present func(rank int) bool) (seat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := safetext.Line(a.Name, mostHostName)
	if a.Host == "" || len(a.Host) > mostHostName {
		return seat{}, errors.New("the host does not say who it is")
	}
	taken := map[int]int{} // index by rank
	for i, h := range s.saved.Hosts {
		if h.Host == a.Host {
			return s.put(i, seat{a.Host, name, h.Rank, now})
		}
		taken[h.Rank] = i
	}
	for rank := 1; rank < groupplan.MaxRanks; rank++ {
		if _, ok := taken[rank]; !ok {
			return s.put(len(s.saved.Hosts), seat{Host: a.Host, Name: name, Rank: rank, Last: now})
		}
	}
	away := -1
	for i, h := range s.saved.Hosts {
		asks := now.Sub(h.Last) < quietLimit // and may not be at the desk yet
		if !asks && !present(h.Rank) && (away < 0 || h.Last.Before(s.saved.Hosts[away].Last)) {
			away = i
		}
	}
	if away < 0 {
		return seat{}, errFull
	}
	return s.put(away, seat{Host: a.Host, Name: name, Rank: s.saved.Hosts[away].Rank, Last: now})
}

// mostHostName bounds the name of a host and its id, in bytes.
const mostHostName = 64

// put stores a host at an index of the list; mu is held.
func (s *seats) put(i int, h seat) (seat, error) {
	if i == len(s.saved.Hosts) {
		s.saved.Hosts = append(s.saved.Hosts, h)
	} else {
		s.saved.Hosts[i] = h
	}
	return h, writeState(s.path, s.saved)
}

// name is that of the host of a rank, "" if there is none.
func (s *seats) name(rank int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.saved.Hosts {
		if h.Rank == rank {
			return h.Name
		}
	}
	return ""
}
