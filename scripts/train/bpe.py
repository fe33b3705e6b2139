"""A byte-level BPE in the manner of GPT-2, cut into words by the `joyai-llm` rules."""
import re

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
CONTROL = [BOS, EOS, PAD]
MARKERS = ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>"]

# The three successive splits.  Python's re has no \p classes: letters are [^\W\d_]; of
# punctuation and symbols only ASCII's are told apart, which is all our text holds.
PUNCT = r"!-/:-@\[-`{-~"
SPLITS = [re.compile(r"\d{1,3}"), re.compile("[一-龥぀-ゟ゠-ヿ]+"), re.compile(
    rf"[{PUNCT}][A-Za-z]+|(?:[^\r\n\w{PUNCT}]|\d)?[^\W\d_]+| ?[{PUNCT}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")]


def isolate(pattern, piece):
    at = 0
    for m in pattern.finditer(piece):
        if m.start() > at:
            yield piece[at:m.start()]
        if m.end() > m.start():
            yield m.group()
        at = m.end()
    if at < len(piece):
        yield piece[at:]


def words(text):
    pieces = [text]
    for pattern in SPLITS:
        pieces = [q for p in pieces for q in isolate(pattern, p)]
    return pieces


def byte_chars():
    """The printable character that stands for each byte."""
    plain = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


BYTES = byte_chars()


def train(counts, n_merges, first=()):
    """The most frequent pair again and again, after the merges of first; counts: word -> how often."""
    known = Tokenizer(first) if first else None
    seqs = [(known.parts(w) if known else [BYTES[b] for b in w.encode()], n) for w, n in counts.items()]
    pairs, where = {}, {}
    for k, (s, n) in enumerate(seqs):
        for p in zip(s, s[1:]):
            pairs[p] = pairs.get(p, 0) + n
            where.setdefault(p, set()).add(k)
    merges = []
    while len(merges) < n_merges and pairs:
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        for k in where.pop(best):
            s, n = seqs[k]
            for p in zip(s, s[1:]):
                pairs[p] -= n
            new = merge(s, best)
            for p in zip(new, new[1:]):
                pairs[p] = pairs.get(p, 0) + n
                where.setdefault(p, set()).add(k)
            seqs[k] = (new, n)
        pairs.pop(best, None)
    return merges


def merge(s, pair):
    out, i = [], 0
    while i < len(s):
        if i + 1 < len(s) and (s[i], s[i + 1]) == pair:
            out.append(s[i] + s[i + 1])
            i += 2
        else:
            out.append(s[i])
            i += 1
    return out


FIRST_VOCAB, FILL = 2048, 20
FIRST = FIRST_VOCAB - len(CONTROL) - 256 - FILL - len(MARKERS)      # merges learned from the text without tools


class Tokenizer:
    """Ids: control tokens, bytes, the first merges, unused ones, markers; then the merges that
    the text with tools has added, so that all others keep their ids."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        made = [a + b for a, b in self.merges]
        unused = [f"<｜place▁holder▁no▁{i}｜>" for i in range(FIRST_VOCAB - len(CONTROL) - 256 - len(made[:FIRST]) - len(MARKERS))]
        self.tokens = CONTROL + BYTES + made[:FIRST] + unused + MARKERS + made[FIRST:]
        self.types = [3] * 3 + [1] * (256 + len(made[:FIRST])) + [5] * len(unused) + [4] * len(MARKERS) + [1] * len(made[FIRST:])
        assert len(set(self.tokens)) == len(self.tokens)
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.special = {t: self.id[t] for t in CONTROL + MARKERS}
        self.split = re.compile("(" + "|".join(map(re.escape, sorted(self.special, key=len, reverse=True))) + ")")
        self.cache, self.back = {}, {c: b for b, c in enumerate(BYTES)}
        self.eos = self.id[EOS]

    def encode(self, text):
        """Markers written in the text become their tokens."""
        out = []
        for part in self.split.split(text):
            if part in self.special:
                out.append(self.special[part])
            else:
                for w in words(part):
                    out += self.word(w)
        return out

    def word(self, w):
        if w not in self.cache:
            self.cache[w] = [self.id[t] for t in self.parts(w)]
        return self.cache[w]

    def parts(self, w):
        """The tokens of a word."""
        s = [BYTES[b] for b in w.encode()]
        while len(s) > 1:
            best = min(zip(s, s[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            if best not in self.rank:
                break
            s = merge(s, best)
        return s

    def bytes(self, i):
        t = self.tokens[i]
        return t.encode() if self.types[i] != 1 else bytes(self.back[c] for c in t)

    def decode(self, ids):
        return b"".join(self.bytes(i) for i in ids).decode("utf-8", "replace")

    def weighted(self, pieces):
        """Ids of the joined pieces (text, weight), and each id's weight: the largest of its bytes."""
        ids, of = self.encode("".join(t for t, _ in pieces)), []
        for t, w in pieces:
            of += [w] * len(t.encode())
        weights, at = [], 0
        for i in ids:
            n = len(self.bytes(i))
            weights.append(max(of[at:at + n]))
            at += n
        assert at == len(of)
        return ids, weights
