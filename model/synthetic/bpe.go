package synthetic

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// corpus is the text that the vocabulary is trained on.
//
//go:embed corpus.txt
var corpus string

// byteChars is the character that stands for each byte in a byte-level BPE
// vocabulary (GPT-2's table): printable Latin-1 bytes stand for themselves, the
// others for U+0100 and on, in order.
func byteChars() [256]string {
	var chars [256]string
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r, next = next, next+1
		}
		chars[b] = string(r)
	}
	return chars
}

// words splits text where the file's tokenizer never merges. A word is a run of letters
// with the preceding space, if any. Anything else is a word of one character.
func words(text string) []string {
	letter := func(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
	var words []string
	for i := 0; i < len(text); {
		end := i
		if text[i] == ' ' && i+1 < len(text) && letter(text[i+1]) {
			end++
		}
		for end < len(text) && letter(text[end]) {
			end++
		}
		end = max(end, i+1)
		words = append(words, text[i:end])
		i = end
	}
	return words
}

// learned are the merges of the corpus that were learned so far, because programs make many
// models. Fewer merges are the first ones of more, since each depends on those before alone.
var learned struct {
	sync.Mutex
	merges [][2]string
	all    bool // there are no more
}

// mergesOf returns up to n merges of the corpus; callers must not modify them.
func mergesOf(n int) [][2]string {
	learned.Lock()
	defer learned.Unlock()
	if len(learned.merges) < n && !learned.all {
		learned.merges = trainBPE(corpus, n)
		learned.all = len(learned.merges) < n
	}
	return learned.merges[:min(n, len(learned.merges))]
}

// trainBPE learns up to n merges from text: each time the most frequent pair of
// neighbours, the first in lexical order among equals. No two merges give the
// same piece.
func trainBPE(text string, n int) [][2]string {
	type word struct {
		pieces []string
		count  int
	}
	chars := byteChars()
	count := map[string]int{}
	for _, w := range words(text) {
		count[w]++
	}
	var list []word
	made := map[string]bool{}
	for w, c := range count {
		pieces := make([]string, len(w))
		for i := range len(w) {
			pieces[i] = chars[w[i]]
		}
		list = append(list, word{pieces, c})
	}
	var merges [][2]string
	for len(merges) < n {
		pairs := map[[2]string]int{}
		for _, w := range list {
			for i := 1; i < len(w.pieces); i++ {
				pairs[[2]string{w.pieces[i-1], w.pieces[i]}] += w.count
			}
		}
		var best [2]string
		most := 0
		for p, c := range pairs {
			if made[p[0]+p[1]] {
				continue
			}
			if c > most || c == most && slices.Compare(p[:], best[:]) < 0 {
				best, most = p, c
			}
		}
		if most == 0 {
			break
		}
		merges = append(merges, best)
		made[best[0]+best[1]] = true
		for i := range list {
			list[i].pieces = join(list[i].pieces, best)
		}
	}
	return merges
}

// join merges every occurrence of pair, from left to right.
func join(pieces []string, pair [2]string) []string {
	out := pieces[:0]
	for i := 0; i < len(pieces); i++ {
		if i+1 < len(pieces) && pieces[i] == pair[0] && pieces[i+1] == pair[1] {
			out = append(out, strings.Join(pair[:], ""))
			i++
		} else {
			out = append(out, pieces[i])
		}
	}
	return out
}
