package tcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ringmaster/distributed/internal/secure"
	"ringmaster/internal/network"
)

// A connection begins with three messages of fixed length. The dialler names itself
// and the rank that it wants; the acceptor answers; the dialler confirms. Each
// message carries an HMAC-SHA256, keyed with the epoch token, over everything sent so
// far. Both sides contribute a nonce, so that each side is authenticated for this
// connection and no other.
//
//	hello    magic u32, version u16, size u16, epoch u32, from u32, to u32,
//	         SHA-256 of the group id [32], nonce [32], mac [32]
//	answer   magic u32, status u32, nonce [32], mac [32] over hello and answer
//	confirm  mac [32] over hello, answer and one byte
//
// Then each side sends network.LargeMessage zeros, so that both know that the path
// carries large packets. The dialler sends first and answers the acceptor's message
// with one byte.
//
// An answer that rejects the dialler is not authenticated, because it is only a hint
// for the error message.
const (
	helloMagic   = 0x31684d52 // "RMh1"
	helloVersion = 3
	helloSize    = 20 + 32 + 32 + sha256.Size
	answerSize   = 8 + 32 + sha256.Size
	confirmSize  = sha256.Size
)

// status is the acceptor's answer.
type status uint32

const (
	statusOK status = iota
	statusNotReady
	statusEpoch
	statusGroup
	statusRank
	statusTaken
	statusVersion
	statusToken
	statusEncrypts
)

func (s status) String() string {
	if int64(s) < int64(len(statusTexts)) {
		return statusTexts[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}

var statusTexts = [...]string{
	statusOK:       "welcome",
	statusNotReady: "it is not connecting a group now",
	statusEpoch:    "it is in another epoch",
	statusGroup:    "it is in another group",
	statusRank:     "it has another rank, or another number of ranks",
	statusTaken:    "it is already connected to this rank",
	statusVersion:  "it runs another version",
	statusToken:    "it has another token",
	statusEncrypts: "it encrypts and this rank does not: give --cluster-encrypt to every rank, or to none",
}

// hello is the dialler's first message.
type hello struct {
	version  uint16
	size     uint16
	epoch    uint32
	from, to uint32
	group    [32]byte // SHA-256 of the group id
	nonce    [32]byte
}

var errNotOurs = errors.New("not a connection of this program")

func seal(token []byte, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, token)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

func sealed(token, mac []byte, parts ...[]byte) bool {
	return subtle.ConstantTimeCompare(mac, seal(token, parts...)) == 1
}

func (h *hello) encode(token []byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, helloSize)
	b = le.AppendUint32(b, helloMagic)
	b = le.AppendUint16(b, h.version)
	b = le.AppendUint16(b, h.size)
	b = le.AppendUint32(b, h.epoch)
	b = le.AppendUint32(b, h.from)
	b = le.AppendUint32(b, h.to)
	b = append(b, h.group[:]...)
	b = append(b, h.nonce[:]...)
	return append(b, seal(token, b)...)
}

// parseHello reads b [helloSize] without checking its mac.
func parseHello(b []byte) (h hello, err error) {
	le := binary.LittleEndian
	if le.Uint32(b) != helloMagic {
		return h, errNotOurs
	}
	h = hello{version: le.Uint16(b[4:]), size: le.Uint16(b[6:]), epoch: le.Uint32(b[8:]), from: le.Uint32(b[12:]), to: le.Uint32(b[16:])}
	copy(h.group[:], b[20:])
	copy(h.nonce[:], b[52:])
	return h, nil
}

func answer(s status, nonce, token, hello []byte) []byte {
	b := make([]byte, 0, answerSize)
	b = binary.LittleEndian.AppendUint32(b, helloMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(s))
	b = append(b, nonce...)
	if s != statusOK {
		return append(b, make([]byte, sha256.Size)...)
	}
	return append(b, seal(token, hello, b)...)
}

// greet runs the dialler's side. The error says why the connection is unusable.
func greet(c io.ReadWriter, h hello, token []byte) error {
	first := h.encode(token)
	if _, err := c.Write(first); err != nil {
		return err
	}
	b := make([]byte, answerSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return fmt.Errorf("no answer to the hello: %w", err)
	}
	if binary.LittleEndian.Uint32(b) != helloMagic {
		return errNotOurs
	}
	if s := status(binary.LittleEndian.Uint32(b[4:])); s != statusOK {
		return fmt.Errorf("rejected: %v", s)
	}
	if !sealed(token, b[answerSize-sha256.Size:], first, b[:answerSize-sha256.Size]) {
		return errors.New("its answer has a wrong proof, because it has another token")
	}
	if _, err := c.Write(seal(token, first, b, []byte{1})); err != nil {
		return err
	}
	return stretch(c)
}

// stretch shows the dialler that the path carries large messages in both directions.
func stretch(c io.ReadWriter) error {
	if _, err := c.Write(make([]byte, network.LargeMessage)); err != nil {
		return network.Large(err)
	}
	if err := readLarge(c); err != nil {
		return err
	}
	_, err := c.Write([]byte{1})
	return err
}

// readLarge reads the large message of the other side.
func readLarge(c io.Reader) error {
	_, err := io.CopyN(io.Discard, c, network.LargeMessage)
	return network.Large(err)
}

// welcome runs the acceptor's side. admit examines a hello and returns the token with
// which it must authenticate, or the status that rejects it.
func welcome(c io.ReadWriter, random io.Reader, admit func(h hello) (token []byte, s status)) (hello, error) {
	first := make([]byte, helloSize)
	if _, err := io.ReadFull(c, first[:4]); err != nil {
		return hello{}, err
	}
	if secure.Begins(first) {
		_, _ = c.Write(answer(statusVersion, make([]byte, 32), nil, nil)) // without TLS, so that the peer sees that this rank does not encrypt
		return hello{}, secure.ErrPeerEncrypted
	}
	if binary.LittleEndian.Uint32(first) != helloMagic {
		return hello{}, errNotOurs // at once, even if it sends less than a hello
	}
	if _, err := io.ReadFull(c, first[4:]); err != nil {
		return hello{}, err
	}
	h, err := parseHello(first)
	if err != nil {
		return h, err
	}
	var token []byte
	s := statusVersion
	if h.version == helloVersion {
		token, s = admit(h)
	}
	if s == statusOK && !sealed(token, first[helloSize-sha256.Size:], first[:helloSize-sha256.Size]) {
		s = statusToken
	}
	nonce := make([]byte, 32)
	if _, err := io.ReadFull(random, nonce); err != nil {
		return h, fmt.Errorf("random bytes: %w", err)
	}
	second := answer(s, nonce, token, first)
	if _, err := c.Write(second); err != nil {
		return h, err
	}
	if s != statusOK {
		return h, fmt.Errorf("rejected: %v", s)
	}
	third := make([]byte, confirmSize)
	if _, err := io.ReadFull(c, third); err != nil {
		return h, err
	}
	if !sealed(token, third, first, second, []byte{1}) {
		return h, errors.New("the confirmation has a wrong proof")
	}
	if err := readLarge(c); err != nil {
		return h, err
	}
	if _, err := c.Write(make([]byte, network.LargeMessage)); err != nil {
		return h, network.Large(err)
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return h, network.Large(err)
}
