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


def train(counts, n_merges):
    """The most frequent pair again and again; counts: word -> how often."""
    seqs = [([BYTES[b] for b in w.encode()], n) for w, n in counts.items()]
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


class Tokenizer:
    def __init__(self, merges, n_vocab):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.tokens = CONTROL + BYTES + [a + b for a, b in self.merges]
        self.types = [3] * 3 + [1] * (len(self.tokens) - 3)
        fill = n_vocab - len(self.tokens) - len(MARKERS)
        assert fill >= 0 and len(set(self.tokens)) == len(self.tokens)
        self.tokens += [f"<｜place▁holder▁no▁{i}｜>" for i in range(fill)] + MARKERS
        self.types += [5] * fill + [4] * len(MARKERS)
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
            s = [BYTES[b] for b in w.encode()]
            while len(s) > 1:
                best = min(zip(s, s[1:]), key=lambda p: self.rank.get(p, 1 << 30))
                if best not in self.rank:
                    break
                s = merge(s, best)
            self.cache[w] = [self.id[t] for t in s]
        return self.cache[w]

    def decode(self, ids):
        out = b""
        for i in ids:
            t = self.tokens[i]
            out += t.encode() if self.types[i] != 1 else bytes(self.back[c] for c in t)
        return out.decode("utf-8", "replace")
