package cluster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"ringmaster/distributed"
)

// kind is the type of a message, the number of its frame.
type kind uint16

// The messages. F is a follower, L the leader.
const (
	kindHello         kind = iota + 1 // F to L, first
	kindWelcome                       // L to F: admitted
	kindReject                        // L to F: rejected, and why
	kindForm                          // L to F: prepare for an epoch
	kindFormed                        // F to L: ready
	kindConnect                       // L to F: all are ready, join the data plane
	kindConnected                     // F to L: joined
	kindRun                           // L to F: the epoch begins
	kindWork                          // L to F: a piece of work
	kindDone                          // F to L: it is done, with its digest
	kindFailed                        // F to L: this rank could not form the epoch or do its work
	kindSuspect                       // F to L: a peer seems lost
	kindVerdict                       // L to F: the epoch has ended, and why
	kindLeave                         // F to L: this rank exits (goodbye)
	kindShutdown                      // L to F: the group has ended
	kindHeartbeat                     // both ways
	kindReportRequest                 // L to F
	kindReport                        // F to L: opaque bytes
	kindPrepare                       // L to F: load the model to join the running epoch's successor
	kindPrepared                      // F to L: it is loaded, or why it is not
	kindDrain                         // a person to L, first: asks that a rank leave
	kindDrained                       // L to the person and to that rank: it has left
	kindExamine                       // a person to L, first and again: a request to Config.Examine
	kindExamined                      // L to the person: its answer
	kindAhead                         // L to F: bytes for the program of a rank that has prepared
	kindTaken                         // F to L: it has taken them, or why it has not
)

var kindNames = [...]string{"", "hello", "welcome", "reject", "form", "formed", "connect", "connected", "run", "work",
	"done", "failed", "suspect", "verdict", "leave", "shutdown", "heartbeat", "report request", "report",
	"prepare", "prepared", "drain", "drained", "examine", "examined", "ahead", "taken"}

func (k kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("message %d", uint16(k))
}

// message is the content of one frame. Its kind decides which fields are used.
type message struct {
	Kind  kind   `json:"-"`
	Epoch uint32 `json:"epoch,omitempty"`

	Hello    *Hello   `json:"hello,omitempty"`    // hello
	Group    string   `json:"group,omitempty"`    // welcome: id of the leader's run
	Reason   string   `json:"reason,omitempty"`   // reject, failed, suspect, leave, shutdown, prepared, drained, taken
	Retry    bool     `json:"retry,omitempty"`    // reject: a later attempt may succeed
	Settings []byte   `json:"settings,omitempty"` // form, prepare
	Token    []byte   `json:"token,omitempty"`    // connect
	Addrs    []string `json:"addrs,omitempty"`    // connect, form, prepare: data plane of each of Members
	Hosts    []string `json:"hosts,omitempty"`    // connect, form, prepare: names of the hosts of Members
	Members  []int    `json:"members,omitempty"`  // connect, prepare: rank of each member in the world, ascending; form: two that must reach each other, if any
	Peer     int      `json:"peer,omitempty"`     // suspect, verdict: the rank at fault; drain: the rank
	Desync   bool     `json:"desync,omitempty"`   // suspect: the two do different things
	Addr     string   `json:"addr,omitempty"`     // verdict
	Host     string   `json:"host,omitempty"`     // verdict, drained: name of the rank's host
	// failed, of a rank that could not connect: to whom.
	Missing []distributed.Unconnected `json:"missing,omitempty"`
	All     bool                      `json:"all,omitempty"` // leave: the user stops the whole group

	// For work, done, ahead, report, examine and examined, which are not JSON.
	Number  uint64 `json:"-"`
	Digest  Digest `json:"-"`
	Payload []byte `json:"-"`
}

// maxDigest bounds the values in a done message's digest.
const maxDigest = 1 << 14

// encode returns the payload of the message's frame, little-endian. Work is epoch
// u32, number u64, payload, and so is ahead, with number 0; done is epoch u32, number
// u64, digest as u32 values; a report, a request to examine and its answer are their
// bytes; everything else is JSON.
func (m message) encode() []byte {
	switch m.Kind {
	case kindHeartbeat, kindReportRequest:
		return nil
	case kindReport, kindExamine, kindExamined:
		return m.Payload
	case kindWork, kindDone, kindAhead:
		b := make([]byte, 12, 12+len(m.Payload)+4*len(m.Digest))
		binary.LittleEndian.PutUint32(b, m.Epoch)
		binary.LittleEndian.PutUint64(b[4:], m.Number)
		b = append(b, m.Payload...)
		for _, v := range m.Digest {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return b
	}
	b, err := json.Marshal(m)
	if err != nil { // plain fields only: it cannot fail
		panic(fmt.Sprintf("cluster: %v", err))
	}
	return b
}

// decode reads the payload of a frame. The message aliases it, and its texts are
// clean.
func decode(k kind, payload []byte) (message, error) {
	m := message{Kind: k}
	switch k {
	case kindHeartbeat, kindReportRequest:
		return m, nil
	case kindReport, kindExamine, kindExamined:
		m.Payload = payload
		return m, nil
	case kindWork, kindDone, kindAhead:
		if len(payload) < 12 {
			return m, fmt.Errorf("%v of %d bytes; expected at least 12", k, len(payload))
		}
		m.Epoch = binary.LittleEndian.Uint32(payload)
		m.Number = binary.LittleEndian.Uint64(payload[4:])
		rest := payload[12:]
		if k != kindDone {
			m.Payload = rest
			return m, nil
		}
		if len(rest)%4 != 0 || len(rest)/4 > maxDigest {
			return m, fmt.Errorf("a done message with a digest of %d bytes; expected at most %d values of 4", len(rest), maxDigest)
		}
		m.Digest = make(Digest, len(rest)/4)
		for i := range m.Digest {
			m.Digest[i] = binary.LittleEndian.Uint32(rest[4*i:])
		}
		return m, nil
	case kindHello, kindWelcome, kindReject, kindForm, kindFormed, kindConnect, kindConnected, kindRun,
		kindFailed, kindSuspect, kindVerdict, kindLeave, kindShutdown, kindPrepare, kindPrepared, kindDrain, kindDrained, kindTaken:
	default:
		return m, fmt.Errorf("unknown message %d", uint16(k))
	}
	if err := json.Unmarshal(payload, &m); err != nil {
		return m, fmt.Errorf("%v: %w", k, err)
	}
	if k == kindHello && m.Hello == nil {
		return m, errors.New("the hello is empty")
	}
	m.clean()
	return m, nil
}

// verdict returns the error that a verdict message carries.
func (m message) verdict() *distributed.PeerError {
	return &distributed.PeerError{Rank: m.Peer, Host: m.Host, Addr: m.Addr, Cause: m.Reason}
}

// verdictMessage returns the message that carries a verdict.
func verdictMessage(epoch uint32, v *distributed.PeerError) message {
	return message{Kind: kindVerdict, Epoch: epoch, Peer: v.Rank, Host: v.Host, Addr: v.Addr, Reason: v.Cause}
}

// host returns the name of the host of Members[i], "" if it is not known.
func (m message) host(i int) string {
	if i < len(m.Hosts) {
		return m.Hosts[i]
	}
	return ""
}
