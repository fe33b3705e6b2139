package enginetest

// The ids of a Vocabulary beyond the 256 bytes.
const (
	BOS = 256 // begins a text; shows nothing
	EOS = 257 // ends an answer; shows nothing
	// Size is the number of ids of a Vocabulary.
	Size = 260
)

// Vocabulary has one token for each byte, BOS, EOS and two ids without text. It
// implements engine.Vocabulary. The zero value is ready to use.
type Vocabulary struct{}

// Size returns 260.
func (Vocabulary) Size() int { return Size }

// Bytes returns the byte of an id below 256 and nothing for the others.
func (Vocabulary) Bytes(id int32) []byte {
	if id < 0 || id > 255 {
		return nil
	}
	return []byte{byte(id)}
}

// IsEnd is true for EOS.
func (Vocabulary) IsEnd(id int32) bool { return id == EOS }

// Encode returns the bytes of text as ids, without BOS.
func (Vocabulary) Encode(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range ids {
		ids[i] = int32(text[i])
	}
	return ids
}

// Decode returns the text of ids; BOS and EOS have none.
func (v Vocabulary) Decode(ids []int32) string {
	var text []byte
	for _, id := range ids {
		text = append(text, v.Bytes(id)...)
	}
	return string(text)
}
