package pairing

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/cloudflare/circl/group"
)

// The password-authenticated exchange is CPace (draft-irtf-cfrg-cpace) with the suite
// CPACE-P256_XMD:SHA-256_SSWU_NU_-SHA256, initiator and responder. A code is hashed to a
// generator of the curve; both sides do a Diffie-Hellman exchange on it. Whoever does not know
// the code computes another secret, and learns from an exchange only whether one guess was
// right, if the other side then proves its secret.
const (
	cpaceDSI  = "CPaceP256_XMD:SHA-256_SSWU_NU_"
	blockSize = sha256.BlockSize
	pointSize = 65 // bytes of an uncompressed point
)

var curve = group.P256

// errPoint: the peer's point is not on the curve, or the identity.
var errPoint = errors.New("the peer sent a value that is not a point of the curve")

// lv appends each text after its length, so that no two lists of texts have the same bytes.
func lv(b []byte, texts ...[]byte) []byte {
	for _, t := range texts {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	return b
}

// generator hashes a code to the curve. channel names both sides and the group, so that a
// code is worth nothing elsewhere. The sid of the draft is for sessions that are known
// beforehand; here it is empty, so that the generator is computed once for a code: its time
// may depend on the code.
func generator(code, channel, sid []byte) group.Element {
	// The code fills a block of the hash of its own.
	pad := max(0, blockSize-1-len(lv(nil, code))-len(lv(nil, []byte(cpaceDSI))))
	text := lv(nil, []byte(cpaceDSI), code, make([]byte, pad), channel, sid)
	return curve.HashToElementNonUniform(text, []byte(cpaceDSI+"_DST"))
}

// exchange is one side's part of an exchange.
type exchange struct {
	secret group.Scalar
	point  []byte // for the other side
}

// begin chooses a secret and computes the point to send.
func begin(g group.Element) (*exchange, error) {
	return beginWith(g, curve.RandomNonZeroScalar(rand.Reader))
}

func beginWith(g group.Element, secret group.Scalar) (*exchange, error) {
	point, err := curve.NewElement().Mul(g, secret).MarshalBinary()
	return &exchange{secret, point}, err
}

// finish computes the key from the other side's point. first and second are the messages of
// the initiator and of the responder, with their associated data.
func (x *exchange) finish(peer, first, second, sid []byte) ([]byte, error) {
	theirs := curve.NewElement()
	if len(peer) != pointSize || theirs.UnmarshalBinary(peer) != nil || theirs.IsIdentity() {
		return nil, errPoint
	}
	shared := curve.NewElement().Mul(theirs, x.secret)
	if shared.IsIdentity() {
		return nil, errPoint
	}
	text, err := shared.MarshalBinary()
	if err != nil {
		return nil, err
	}
	k := text[1 : 1+(pointSize-1)/2] // the x coordinate
	h := sha256.New()
	h.Write(lv(nil, []byte(cpaceDSI+"_ISK"), sid, k))
	h.Write(first)
	h.Write(second)
	return h.Sum(nil), nil
}
