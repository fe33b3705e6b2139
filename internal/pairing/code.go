package pairing

import (
	"crypto/rand"
	"strings"
)

// letters are those of a code, without 0, 1, I and O. There are 32, so that a random
// byte chooses evenly.
const letters = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"

// codeLength is in letters: 30 bits. A stranger may try mostWrong codes.
const codeLength = 6

// NewCode returns a random code, such as 4KQ-M2X.
func NewCode() string {
	var b [codeLength]byte
	rand.Read(b[:]) // never fails
	for i := range b {
		b[i] = letters[b[i]%byte(len(letters))]
	}
	return string(b[:codeLength/2]) + "-" + string(b[codeLength/2:])
}

// plainCode is a code as both sides hash it: without what people add.
func plainCode(code string) []byte {
	return []byte(strings.NewReplacer("-", "", " ", "").Replace(strings.ToUpper(strings.TrimSpace(code))))
}

// WellFormed reports whether a text can be a code.
func WellFormed(code string) bool {
	plain := plainCode(code)
	for _, c := range plain {
		if !strings.ContainsRune(letters, rune(c)) {
			return false
		}
	}
	return len(plain) == codeLength
}
