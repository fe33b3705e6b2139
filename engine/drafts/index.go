package drafts

// An index finds where a text says what another one ended with. It is a hash table of the
// last position of each run of three tokens, with a chain to the positions before.
type index struct {
	ids     []int32
	prev    []int32 // [len(ids)] by position: the one before that ends with the same hash, 0 for none
	heads   []int32 // by hash: the last position, 0 for none
	shift   uint    // of a hash, so that it is below len(heads)
	indexed int     // positions up to here, inclusive, are in the table
}

const (
	// least is the fewest tokens that must be equal.
	least = 3
	// longest is the most tokens that are compared.
	longest = 64
	// tries is the most positions that are compared.
	tries = 32
	// atOnce is the most positions that one call of Draft adds to the tables of all texts
	// together, about a millisecond's work. More text is found in only after several calls.
	atOnce = 1 << 15
)

// append adds tokens to the text.
func (x *index) append(ids ...int32) { x.ids = append(x.ids, ids...) }

// hash returns the hash of the three tokens before position at.
func (x *index) hash(ids []int32, at int) uint32 {
	h := uint32(ids[at-3])*0x9e3779b1 ^ uint32(ids[at-2])*0x85ebca77 ^ uint32(ids[at-1])*0xc2b2ae3d
	h ^= h >> 15
	return h * 0x2c1b3c6d >> x.shift
}

// extend adds the positions up to to, inclusive, to the table, at most left, and reports
// whether it has all of them. It subtracts from left those that it adds.
func (x *index) extend(to int, left *int) (complete bool) {
	if x.indexed < to && *left == 0 {
		return false
	}
	if len(x.heads) < len(x.ids) {
		x.grow()
	}
	end := min(to, x.indexed+*left)
	*left -= max(end-x.indexed, 0)
	for len(x.prev) <= end {
		x.prev = append(x.prev, 0)
	}
	for at := max(x.indexed+1, least); at <= end; at++ {
		h := x.hash(x.ids, at)
		x.prev[at], x.heads[h] = x.heads[h], int32(at)
	}
	x.indexed = max(x.indexed, end)
	return x.indexed >= to
}

// grow makes a larger table. Its positions are added again.
func (x *index) grow() {
	bits := uint(10)
	for 1<<bits < 2*len(x.ids) {
		bits++
	}
	x.heads, x.shift = make([]int32, 1<<bits), 32-bits
	x.prev, x.indexed = x.prev[:0], 0
}

// find returns the position after the longest run of tokens that is equal to the end of
// text, the last one among equals, and the length of the run; 0 if it has fewer than least
// tokens. A position at the end of the index is no answer, because nothing follows it.
func (x *index) find(text []int32) (at, length int) {
	if len(text) < least || len(x.heads) == 0 {
		return 0, 0
	}
	c := int(x.heads[x.hash(text, len(text))])
	for range tries {
		if c == 0 || length >= longest {
			break
		}
		n := 0
		for n < longest && n < c && n < len(text) && x.ids[c-1-n] == text[len(text)-1-n] {
			n++
		}
		if n >= least && n > length && c < len(x.ids) {
			at, length = c, n
		}
		c = int(x.prev[c])
	}
	return at, length
}
