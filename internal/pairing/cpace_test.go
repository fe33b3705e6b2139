package pairing

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bytesOf reads hexadecimal digits, with spaces between them.
func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	require.NoError(t, err)
	return b
}

// TestCPaceVectors: the test vectors of draft-irtf-cfrg-cpace for P-256 and SHA-256.
func TestCPaceVectors(t *testing.T) {
	sid := bytesOf(t, "34b36454cab2e7842c389f7d88ecb7df")
	g := generator([]byte("Password"), []byte("\nAinitiator\nBresponder"), sid)
	point, err := g.MarshalBinary()
	require.NoError(t, err)
	require.Equal(t, bytesOf(t, `041b51433114e096c9d595f0955f5717a75169afb95557f4a6f51155
		035dee19c76887bce5c7c054fa1fe48a4a62c7fb96dc75e34259d2f72b8d41f31b8e586bcd`), point)
	side := func(secret, public string) *exchange {
		s := curve.NewScalar()
		require.NoError(t, s.UnmarshalBinary(bytesOf(t, secret)))
		x, err := beginWith(g, s)
		require.NoError(t, err)
		require.Equal(t, bytesOf(t, public), x.point)
		return x
	}
	a := side("37574cfbf1b95ff6a8e2d7be462d4d01e6dde2618f34f4de9df869b24f532c5d",
		`04b75c1bcda84a0f324aabb7f25cf853ed7fb327c33f23db6aeb320d81df014649c2ac691925fce0
		eceac7dbc75eca25e6a1558066a610b4021488279e3b989d52`)
	b := side("e5672fc9eb4e721f41d80181ec4c9fd9886668acc48024d33c82bb102aecba52",
		`04bb2783a57337e74671f76452876b27839c0ea9e044e3aadaad2e64777ed27a90e80a99438e2f1c
		072462f2895c6dadf1b43867b92ffb65562b78c793947dcada`)
	first, second := lv(nil, a.point, []byte("ADa")), lv(nil, b.point, []byte("ADb"))
	want := bytesOf(t, "7ae1e916606e44652e3c0d7231198af6519226339c241e546afd0bbf48e1c96a")
	for _, x := range []struct {
		*exchange
		peer []byte
	}{{a, b.point}, {b, a.point}} {
		key, err := x.finish(x.peer, first, second, sid)
		require.NoError(t, err)
		require.Equal(t, want, key)
	}
}

// TestCPaceInvalid: values that are no points of the curve are refused, those of the draft
// among them.
func TestCPaceInvalid(t *testing.T) {
	x, err := begin(generator([]byte("code"), []byte("group"), nil))
	require.NoError(t, err)
	for name, peer := range map[string][]byte{
		"nothing":      nil,
		"the identity": {0},
		"another curve": bytesOf(t, `0424648eb986c2be0af636455cef0550671d6bcd8aa26e0d72ffa1b1
			fd12ba4e0f78da2b6d2184f31af39e566aef127014b6936c9a37346d10a4ab2514faef5857`),
		"too long": append([]byte{4}, make([]byte, 2*pointSize)...),
	} {
		_, err := x.finish(peer, nil, nil, nil)
		require.ErrorIs(t, err, errPoint, name)
	}
}
