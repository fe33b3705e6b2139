#!/usr/bin/env python3
"""Generates questions that the model is to decline, and the held-out ones (declines.py OUT.jsonl writes those).

What is asked is beyond its facts: numbers that are not taught, names that no fact has, persons and events,
things to do, and text without sense. Wordings, names and numbers of the held-out questions are in no training."""
import functools
import json
import random
import re
import sys

import corpus
import facts as f
import wordings as w

FACT = "I do not know that. I am a very small model and know only a few facts."
SUM = "I cannot work that out. I am a very small model and know only small sums."
TASK = "I cannot do that. I am a very small model and only answer short questions."
SENSE = "I do not understand that. I am a very small model and only answer short questions."
ACCEPT = ["I do not know that", "I cannot work that out", "I cannot do that", "I do not understand that"]


def lines(text):
    return [x.strip() for x in text.replace("\n", " ").split(";")]


# Names that no fact has; those of HELD_NAMES are asked for in held-out questions only.
PLACES = lines("""Atlantis; Narnia; Wakanda; Gondor; Mordor; Utopia; Oz; Neverland; Lilliput; Genovia; Ruritania; Camelot; El Dorado; Elbonia;
    Texas; California; Florida; Ohio; Bavaria; Saxony; Catalonia; Tuscany; Siberia; Wales; Quebec; Ontario; Normandy; Brittany; Flanders; Lapland;
    Corsica; Sardinia; Crete; Bali; Java; Sumatra; Borneo; Hawaii; Alaska; Nevada; Kansas; Virginia; Queensland; Victoria; Tasmania; Manitoba;
    Hokkaido; Kerala; Punjab; Tibet; Patagonia; Yorkshire; Cornwall; Andalusia; Sicily; Prussia; the Roman Empire; Yugoslavia; Czechoslovakia;
    the Soviet Union; Mesopotamia; Babylon; Gotham; Hogwarts; Asgard; Mars; the Moon; Greenland; Gibraltar; Bermuda; Aruba; Guam; Tahiti;
    Westeros; Middle-earth; Freedonia; Zubrowka; Sokovia; Latveria; Panem; Erewhon; Shangri-La; Avalon; Arendelle""")
HELD_PLACES = lines("""Lemuria; Rohan; Hyrule; Tatooine; Agrabah; Michigan; Oregon; Provence; Burgundy; Galicia; Scotland; Alberta; Bohemia;
    Transylvania; Rhodesia; Macau; Winterfell; Illinois; Hesse; Okinawa""")
PERSONS = lines("""Albert Einstein; Isaac Newton; Marie Curie; Napoleon; Julius Caesar; Cleopatra; Mozart; Beethoven; Bach; Picasso; Michael Jackson;
    Madonna; Elvis Presley; Taylor Swift; Barack Obama; Angela Merkel; Winston Churchill; George Washington; Abraham Lincoln; Gandhi; Nelson Mandela;
    Martin Luther King; Queen Elizabeth; Donald Duck; Mickey Mouse; Harry Potter; Sherlock Holmes; Batman; Superman; James Bond; Lionel Messi;
    Ronaldo; Roger Federer; Usain Bolt; Steve Jobs; Bill Gates; Elon Musk; Charles Darwin; Galileo; Copernicus; Plato; Aristotle; Socrates; Homer;
    Goethe; Dante; Jane Austen; Charles Dickens; Mark Twain; Agatha Christie; Tolkien; Vincent van Gogh; Rembrandt; Michelangelo; Columbus; Magellan;
    Neil Armstrong; Yuri Gagarin; Robin Hood; King Arthur; Anna Schmidt; John Smith; Peter Miller; Maria Garcia; Tom Jones; Alice Brown; Sara Lee;
    my uncle; my neighbour; my boss; my brother; your friend; Mister Brown; Doctor Who; Joan of Arc; Karl Marx; Sigmund Freud; Frida Kahlo""")
HELD_PERSONS = lines("""Stephen Hawking; Nikola Tesla; Marilyn Monroe; Charlie Chaplin; Alan Turing; Ada Lovelace; Genghis Khan; Vivaldi; Serena Williams;
    Greta Thunberg; Voltaire; Spider-Man; Jack Wilson; my sister; Bob Dylan; Pele""")
WORKS = lines("""Faust; The Lord of the Rings; Moby Dick; Ulysses; The Great Gatsby; Pride and Prejudice; Oliver Twist; Dracula; Frankenstein; The Hobbit;
    Star Wars; Titanic; Avatar; The Godfather; Casablanca; Macbeth; Othello; King Lear; The Odyssey; The Iliad; Emma; The Magic Flute; Carmen; Aida;
    Guernica; The Scream; Starry Night; The Last Supper; Yesterday; Imagine; Bohemian Rhapsody; Crime and Punishment; Les Miserables; The Trial;
    Brave New World; Robinson Crusoe; Gulliver's Travels; Alice in Wonderland; Treasure Island; Peter Pan; Pinocchio; The Little Prince; Momo""")
HELD_WORKS = lines("Jane Eyre; Animal Farm; Jaws; Tosca; The Tempest; The Kiss; Candide; Middlemarch; The Jungle Book")
THINGS = lines("""quantum physics; recursion; climate change; artificial intelligence; the telephone; the light bulb; the steam engine; the aeroplane; the car; the computer; the internet; the radio; the bicycle; penicillin;
    dynamite; the printing press; television; the Eiffel Tower; the Colosseum; the Taj Mahal; the Great Wall; the pyramids; the Titanic; the first world war;
    the second world war; the French revolution; the moon landing; the Olympic games; the world cup; the stock market; bitcoin; inflation; democracy;
    photosynthesis; evolution; the black hole; gravity; electricity; a rainbow; thunder; an earthquake; the big bang; the atom; DNA; the brain; the heart;
    a virus; a vaccine; the cold war; the middle ages; chess; football; tennis; jazz; the euro; the dollar; a mortgage; the ozone layer; a transistor""")
HELD_THINGS = lines("the microscope; the Berlin wall; the Brooklyn bridge; the industrial revolution; a comet; a hurricane; insulin; opera; the yen; a prime number")
CODE = lines("""a python function; a python function that sorts a list; a python script that reads a file; a function that adds two numbers; a sorting function; a program in C; a java class; a web page; a shell script; a sql query; a regular expression; a game in javascript;
    a rust program; an html form; a unit test; a quicksort; a binary search; a chat bot; a makefile; a parser; a web server; a calculator in python""")
HELD_CODE = lines("a haskell program; a css style sheet; a perl script; a linked list in C; a dockerfile; a hash table")
TEXTS = lines("""a poem; a story; a short story; a song; an email; a letter; an essay; an email to my boss; an essay about {t}; a poem about {t}; a story about {t}; a letter to {p}; a song about {t}; a speech about {t}; an email to {p}; a report on {t};
    a summary of {t}; a long text about {t}; a joke about {t}; a review of {w}; a book about {p}; an article about {t}; a recipe for soup; a recipe for pizza;
    a shopping list; a travel plan; a business plan; a training plan; a plan for the week; a list of ten books; a fairy tale; a haiku; a contract; my homework""")
HELD_TEXTS = lines("a newspaper article on {t}; a birthday card for {p}; a limerick; a recipe for pancakes; a blog post about {t}; a novel about {p}; a curriculum; a wedding speech")

# {p} person, {w} work, {t} thing, {c} place or country, {a} any word, {y} year, {n} number, {k} code, {x} text to write.
OPEN = {
    FACT: (["who (is|was) {p}", "(tell me|what do you know) about {p}", "when was {p} born", "where was {p} born", "how old is {p}", "when did {p} die", "is {p} (still |)alive",
            "what did {p} (do|invent|write|say|discover)", "why is {p} famous", "where does {p} live", "what is {p} famous for", "how tall is {p}", "who is the (wife|husband|mother|father|child) of {p}",
            "what is the (real |)name of {p}", "what does {p} (like|think|want)", "how rich is {p}", "who killed {p}", "do you know {p}", "have you heard of {p}", "{p}", "who is {p} exactly",
            "who wrote {w}", "who (painted|composed|directed|made) {w}", "what is {w} about", "who is the (author|hero|painter|director) of {w}", "when was {w} (written|made|published)", "how does {w} end",
            "did you (read|see) {w}", "is {w} a (book|film|good book)", "who plays in {w}", "the author of {w}",
            "who invented {t}", "who (built|discovered|made) {t}", "when was {t} (invented|built|discovered)", "how does {t} work", "what is {t}", "explain {t}( to me|)", "why is {t} important", "what causes {t}",
            "when did {t} (begin|end|start|happen)", "how (big|old|long|tall) is {t}", "(tell me|what do you know) about {t}", "where is {t}", "what is the history of {t}", "how do i understand {t}", "define {t}",
            "who is the (president|king|queen|prime minister|chancellor|leader|mayor) of {c}", "how many people live in {c}", "what is the population of {c}", "how (big|large|old|rich) is {c}", "what is the currency of {c}",
            "what is the flag of {c}", "what is the national (animal|anthem|dish|flower) of {c}", "which rivers are in {c}", "what is the (highest mountain|longest river|largest lake|second city) (of|in) {c}",
            "who won the (war|election|world cup) in {c}", "what do people eat in {c}", "what is the history of {c}", "what is the weather in {c}", "how far is it to {c}", "is {c} a nice country", "how do i get to {c}",
            "what time is it in {c}", "who lives in {c}", "tell me (more |something |)about {c}", "what are the neighbours of {c}", "which countries are next to {c}", "when was {c} founded",
            "what happened in {y}", "who won the (world cup|election|nobel prize|super bowl|race) in {y}", "who was president in {y}", "what was the weather in {y}", "which film won the oscar in {y}", "what will happen in {y}",
            "who won (yesterday|last night|the match|the league)", "what is the news( today|)", "what is new( today|)", "what is on television( tonight|)", "who is winning", "what is the (price|cost) of {a}", "how much (is|costs) {a}",
            "how much does {a} cost", "what is the stock price of {a}", "what is the latest (phone|version|news) of {a}", "where can i buy {a}", "what is my (age|address|phone number|job|password)", "where is my {a}", "who am i",
            "when is my birthday", "what did i (say|eat|do) yesterday", "what should i (eat|do|wear|buy|read|say)( today|)", "should i (buy|sell|eat|marry) {a}", "what is the best (restaurant|hotel|school|phone|way) in {c}",
            "is it (legal|healthy|safe|dangerous) to {a}", "why (do|does) {a} hurt", "what helps against {a}", "what is the meaning of {a}", "what does {a} mean", "what does the word {a} mean", "how do you say {a} in (french|german|latin)",
            "what is the difference between {a} and {a2}", "why is {a} {a2}", "how is {a} made", "how do i make {a}", "what is inside {a}", "what is {a} made of", "who likes {a}", "is there a god", "what is love", "what is time",
            "how many {a} are there in the world", "how fast is {a}", "how heavy is {a}", "how long does {a} live", "how far is the (sun|moon|next star)", "how old is the (earth|universe|sun)", "what is the speed of (light|sound)",
            "what is pi", "what is the square root of two", "what is the boiling point of {a}", "what is the melting point of {a}", "what is the density of {a}", "what is the mass of {a}", "who discovered {a}", "what is {a} used for",
            "is {a} (toxic|edible|expensive)", "which is better, {a} or {a2}", "what rhymes with {a}", "which (team|band|song|colour|book) do you like", "what is your favourite (colour|food|film|song)", "are you married", "how old are you"],
           ["who exactly was {p} and what did he do", "in which year did {p} come into the world", "to whom is {p} married", "which school did {p} go to", "what language did {p} speak", "give me some facts about {p}",
            "can you tell me who the writer of {w} is", "in what year did {w} come out", "what is the plot of {w}", "who sings in {w}", "which person had the idea for {t}", "what can you tell me about {t}", "how long ago was {t}",
            "what is the use of {t}", "who governs {c} at the moment", "how many inhabitants does {c} have", "which money do they use in {c}", "what is the coldest place in {c}", "which party rules in {c}", "which sea is near {c}",
            "what were the main events of {y}", "who became champion in {y}", "which song was number one in {y}", "did anything happen last night", "how expensive is {a} now", "what would {a} cost me", "where did i put my {a}",
            "which doctor should i see", "is it going to rain this evening", "who will win the next election", "which train goes to {c}", "where does the word {a} come from", "how does one produce {a}", "what is the opposite of everything",
            "what is the age of the universe", "how deep is the ocean", "what is your favourite book", "do you dream", "which shares should i buy", "what is the exchange rate of {a}"]),
    TASK: (["write( me|) {x}", "(please |)write {x}( for me|)", "can you write {x}", "i need {x}", "make( me|) {x}", "give me {x}", "help me (with|write) {x}", "could you make {x}", "i want {x}, can you do it", "compose {x}",
            "write( me|) {k}", "(please |)write {k}( for me|)", "can you (write|code|program) {k}", "i need {k}", "make( me|) {k}", "give me {k} that (works|is fast|sorts numbers|prints hello)", "how do i write {k}", "fix {k}( for me|)",
            "help me with {k}", "show me {k}", "what is wrong with {k}", "explain {k}", "debug {k}", "how does {k} work", "implement {k}", "{k}, please", "translate this (text|sentence|page)( into french| into german|)", "translate {a} {a2} into (french|german|spanish)",
            "summarise (this|the text|the article|the book|{w})", "(correct|improve|rewrite|shorten|check) (this|my) (text|sentence|letter|essay|grammar)", "plan (a trip to {c}|my day|a party|my holiday|a wedding)", "book (a flight to {c}|a table|a hotel)",
            "order (a pizza|a taxi|{a})", "call (my mother|a taxi|{p})", "send (an email|a message) to {p}", "play (a song|some music|{w})", "draw (a picture|{a}|a house|{p})", "paint (a picture of |){a}", "open the (door|browser|file|window)", "turn on the (light|radio|heating)",
            "search the (web|internet)( for {a}|)", "look up {p}", "set an alarm( for seven|)", "remind me (to call {p}|to buy {a}|tomorrow)", "count to (a thousand|one hundred|a million|fifty)", "list all (countries|elements|animals|prime numbers|the planets|months)",
            "list ten {a}", "name five (rivers|cities|books|films|animals)", "solve (this equation|the puzzle|my problem|x + 3 = 10|2x = 8|this riddle)", "prove (that|the theorem of pythagoras|it|fermat's theorem)", "teach me (french|to code|chess|mathematics)",
            "let us play (chess|a game|cards)", "sing( a song| for me|)", "dance( for me|)", "cook( dinner| soup|) for me", "do my homework", "think step by step about {t}", "compare {a} and {a2}", "analyse (this|the data|my business|{w})",
            "create (a table|a picture|a website|a logo)( for me|)", "read (this|my) (file|document|letter)", "find (me |)(a job|a flat|a friend|a doctor)", "repair my (car|computer|phone|bike)", "how do i (fix|repair) my (car|computer|phone|bike)", "how do i cook (soup|rice|pasta|{a})",
            "give me advice( on {a}| about {t}|)", "convert (100 euros to dollars|5 miles to km|this file)", "print({a})", "def {a}(x): return x", "for i in range(10): print(i)", "select * from {a}", "#include <stdio.h>", "import {a}", "<html><body>{a}</body></html>",
            "x = {n}; y = x * 2; what is y", "int main() { return {n}; }", "console.log({n})", "git push", "sudo rm {a}", "ls -l", "cat {a}.txt", "{\"{a}\": {n}}", "what does print({n}) print", "why does my (code|program) (crash|not work|hang)"],
           ["draft {x}", "put together {x} for me", "would you be able to write {x}", "think of {x}", "program {k} for me", "i want to build {k}, how do i start", "review {k}", "optimise {k}", "what would {k} look like", "generate {k}",
            "put this sentence into italian", "find the mistakes in my text", "arrange a holiday in {c} for me", "reserve two seats on the train to {c}", "text {p} that i am late", "switch off the heating", "enumerate all kings of {c}", "name twenty animals",
            "design a logo for my shop", "explain step by step how to bake bread", "const x = {n}; alert(x)", "fn main() { println!(\"{a}\"); }", "play hide and seek with me", "convert 70 kilos to pounds"]),
}
YEARS = ["1066", "1492", "1789", "1848", "1914", "1945", "1969", "1989", "1999", "2001", "2010", "2016", "2020", "2022", "2024", "2025", "2030"]
HELD_YEARS = ["1815", "1918", "1961", "2012", "2019"]

# Operations that are not taught. {a} {b} {c} are numbers.
MORE = ["{a} + {b} + {c}", "{a} * {b} + {c}", "({a} + {b}) * {c}", "{a} - {b} - {c}", "{a} * {b} * {c}", "{a} + {b} * {c}", "({a} - {b}) / {c}", "{a}^{b}", "{a} to the power of {b}", "the square of {b}", "{a} squared", "{a} cubed",
        "the (square |cube |)root of {a}", "sqrt({a})", "{a}!", "the factorial of {b}", "{a} percent of {b}", "{a}% of {b}", "{a} mod {b}", "the remainder of {a} divided by {b}", "log({a})", "sin({a})", "cos({a})", "one third of {a}", "a quarter of {a}",
        "three times {b} plus {c}", "the average of {a} and {b}", "the greatest common divisor of {a} and {b}", "{a} plus {b} plus {c}", "{a} times {b} minus {c}", "the sum of {a}, {b} and {c}", "{a} in binary", "{a} in roman numerals", "the prime factors of {a}",
        "the sum of the numbers from {a} to {b}", "{a} ** {b}", "{a} modulo {b}", "abs(-{a})", "max({a}, {b}, {c})", "{a} dozen", "1/{a} + 1/{b}", "{a} : {b}", "{a} divided by {b} plus {c}", "ten to the power of {a}"]
HELD_MORE = ["the logarithm of {a}", "{a} raised to the power {b}", "{a} and {b} and {c} added up", "{a} per cent of {b}", "the product of {a}, {b} and {c}", "{a} minus {b} plus {c}", "the fifth root of {a}", "({a} * {b}) - {c}", "tan({a})", "{a} in hexadecimal"]
AROUND = ["{}", "{}", "what is {}", "what's {}", "calculate {}", "compute {}", "how much is {}", "(please |)work out {}", "solve {}", "tell me {}", "what does {} equal", "the result of {}", "{} equals", "{} is", "evaluate {}", "find {}", "{}, please", "can you (do|compute|calculate) {}"]
HELD_AROUND = ["what do you get for {}", "would you know {}", "i need the value of {}", "how do i calculate {}", "let me know what {} comes to"]


def alternatives(rng, grammar):
    """Like corpus.expand, but brackets without | stay: code and formulas have them."""
    while m := re.search(r"\(([^()]*\|[^()]*)\)", grammar):
        grammar = grammar[:m.start()] + rng.choice(m.group(1).split("|")) + grammar[m.end():]
    return re.sub(" +", " ", grammar).strip()


def held_pair(a, b):
    """Pairs of numbers that only held-out questions ask for."""
    return (round(a * 31) + round(b * 17)) % 7 == 5


def known(op, a, b):
    """Whether the facts have the result."""
    if a < 0 or b < 0 or a != int(a) or b != int(b):
        return False
    return {"add": a <= 20 and b <= 20, "sub": b <= a <= 20, "mul": a <= 12 and b <= 12, "div": 0 < b <= 12 and a in [b * n for n in range(1, 13)],
            "bigger": a <= 20 and b <= 20}[op]


def number(rng):
    """A number of any size; round ones and those just beyond what is taught are frequent."""
    r = rng.random()
    if r < 0.26:
        return rng.randint(0, 20)
    if r < 0.50:
        return rng.randint(13, 99)
    if r < 0.62:
        return rng.randint(100, 999)
    if r < 0.70:
        return rng.randint(1000, 99999)
    if r < 0.90:
        return rng.choice((10, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100, 100, 100, 110, 120, 150, 200, 200, 250, 300, 400, 500, 500, 600, 700, 750, 800, 900, 1000, 1000, 1500, 2000, 5000, 10000, 100000, 1000000))
    if r < 0.97:
        return round(rng.choice((rng.uniform(0, 20), rng.uniform(0, 200))), rng.choice((1, 1, 2)))
    return -rng.choice((rng.randint(1, 20), rng.randint(1, 200)))


def pair(rng, op, held):
    while True:
        a, b = number(rng), number(rng)
        if op == "div" and b == 0:
            continue
        if not known(op, a, b) and held_pair(a, b) == held:
            return a, b


SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def in_words(n):
    """A whole number up to 99,999 in words, as people write it."""
    if n <= 100:
        return f.words(n)
    if n < 1000:
        return f.words(n // 100) + " hundred" + (" and " + f.words(n % 100) if n % 100 else "")
    return in_words(n // 1000) + " thousand" + (" " + in_words(n % 1000) if n % 1000 else "")


def shown(rng, n):
    """How a number is written: digits, words now and then, thousands with a comma."""
    if n == int(n) and 0 <= n < 100000 and rng.random() < 0.12:
        return in_words(int(n)) if rng.random() < 0.8 or n not in (100, 1000) else {100: "a hundred", 1000: "a thousand"}[n]
    if n >= 1000 and n == int(n) and rng.random() < 0.15:
        return f"{int(n):,}"
    return str(n)


def sums(rng, held):
    """A sum in the wordings of the facts, with numbers that these do not have."""
    op = rng.choice(list(SIGNS))
    a, b = pair(rng, op, held)
    template = rng.choice(w.HELD[op]) if held else corpus.loosen(rng, corpus.expand(rng, rng.choice(w.TRAIN[op])))
    digits = rng.random() < 0.8
    return template.format(x=a if digits else shown(rng, a), y=b if digits else shown(rng, b)), SUM


def forms(rng, held):
    """Bare expressions, and operations that are not taught at all."""
    if rng.random() < 0.55:
        op = rng.choice(list(SIGNS))
        a, b = pair(rng, op, held)
        sign = rng.choice(("x", "×")) if op == "mul" and rng.random() < 0.15 else SIGNS[op]
        q = rng.choice(("{} {} {}", "{} {} {}", "{}{}{}")).format(a, sign, b)
        if rng.random() < 0.3:
            q += rng.choice((" =", " = ?", "="))
            return q, SUM
    else:
        a, b = pair(rng, "add", held) if held or rng.random() < 0.5 else (rng.randint(0, 20), rng.randint(1, 20))
        q = alternatives(rng, rng.choice(HELD_MORE if held else MORE)).format(a=a, b=b, c=number(rng))
    around = rng.choice(HELD_AROUND if held else AROUND)
    return corpus.expand(rng, around).replace("{}", q), SUM


def counting(rng, held):
    """The other questions about numbers, beyond what is taught."""
    kind = rng.choice(("double", "half", "next", "number_word", "parity", "bigger"))
    least = {"double": 51, "half": 101, "next": 100, "number_word": 101, "parity": 101, "bigger": 21}[kind]
    while True:
        x = rng.choice((rng.randint(least, least + 60), rng.randint(least, 999), rng.choice((200, 300, 500, 1000, 2000, 10000)), rng.randint(1000, 99999), -rng.randint(1, 50), round(rng.uniform(0, 100), 1)))
        y = rng.choice((rng.randint(0, 20), number(rng)))
        if kind == "half" and rng.random() < 0.3:
            x = rng.randrange(1, 100, 2)
        if x < least and x == int(x) and x >= 0 and not (kind == "half" and x % 2):
            continue
        if rng.random() < 0.5 and kind == "bigger":
            x, y = y, x
        if held_pair(x, y if kind == "bigger" else 1) == held and x != y and not (kind == "bigger" and known(kind, x, y)):
            break
    template = rng.choice(w.HELD[kind]) if held else corpus.loosen(rng, corpus.expand(rng, rng.choice(w.TRAIN[kind])))
    return template.format(x=x, y=y), SUM


@functools.lru_cache(1)
def strangers():
    """What each kind's facts are about and the words of it, in small letters: no question asks a thing that is known."""
    out = {}
    for kind, entries in corpus.FACTS.items():
        things = {str(v).lower().removeprefix("the ") for slots, *_ in entries for v in slots.values()}
        out[kind] = things | {x for t in things for x in t.split(" ")}
    return out


NAMED = {"capital": 6, "country": 4, "continent": 5, "language": 5, "colour": 4, "sound": 3, "baby": 3, "legs": 3, "group": 3, "opposite": 3, "plural": 2, "past": 2, "symbol": 4,
         "element": 3, "atomic": 3, "day_after": 1, "month_after": 1, "month_days": 2, "sides": 2, "planet": 2, "month_nth": 2, "letter_after": 1}


def word(rng, held, real=0.55):
    """Any word: of the facts with the chance real, or one that means nothing."""
    import tools
    if rng.random() < real and not held:
        return rng.choice(tools.KNOWN)
    while True:
        x = tools.spelled(rng)
        if (len(x) % 3 == 1 and len(x) > 3) == held:        # the held-out ones have 4, 7, 10 letters
            return x


def named(rng, held):
    """A question of the facts about a name that none of them has."""
    kind = rng.choices(list(NAMED), list(NAMED.values()))[0]
    taken = strangers()[kind]
    while True:
        r = rng.random()
        if kind in ("planet", "month_nth"):
            x = rng.choice(("tenth", "fifteenth", "twentieth", "hundredth", "thirtieth") if held else ("thirteenth", "fourteenth", "sixteenth", "last but one", "twelfth", "eleventh", "ninth", "twenty-first", "zeroth", "fiftieth"))
        elif kind == "element":
            x = corpus.up(rng.choice("abcdefghijklmnopqrstuvwxyz") + rng.choice("abcdefghijklmnopqrstuvwxyz"))
            if (ord(x[0]) + ord(x[1])) % 5 == 0 and not held or (ord(x[0]) + ord(x[1])) % 5 and held:
                continue
        elif kind in ("capital", "country", "continent", "language") and r < 0.6:
            x = rng.choice(HELD_PLACES if held else PLACES)
        elif r < 0.8 or held:
            x = word(rng, held, 0 if kind in ("plural", "past", "opposite") else 0.55)
            x = corpus.up(x) if kind in ("capital", "country", "continent", "language") or rng.random() < 0.2 else x
        else:
            x = rng.choice(THINGS if rng.random() < 0.3 else PERSONS)
        if x.lower().removeprefix("the ").removeprefix("a ") not in taken:
            break
    template = rng.choice(w.HELD[kind]) if held else corpus.loosen(rng, corpus.expand(rng, rng.choice(w.TRAIN[kind])))
    return template.format(x=x, xs=x + "s", n=rng.randint(13, 40), y=x), FACT


def asked(rng, held, answer):
    """A question put together from a wording and names."""
    train, kept = OPEN[answer]
    if held:
        q = rng.choice(kept)
    else:
        q = alternatives(rng, rng.choice(train))
    country = rng.choice(list(f.LANGUAGE)) if rng.random() < 0.7 else rng.choice(HELD_PLACES if held else PLACES)
    thing = rng.choice(HELD_THINGS if held else THINGS)
    person, work = rng.choice(HELD_PERSONS if held else PERSONS), rng.choice(HELD_WORKS if held else WORKS)
    text = rng.choice(HELD_TEXTS if held else TEXTS).replace("{t}", thing).replace("{p}", person).replace("{w}", work)
    for slot, v in (("p", person), ("w", work), ("t", thing), ("c", corpus.the(country)), ("a", word(rng, held)), ("a2", word(rng, held)), ("y", rng.choice(HELD_YEARS if held else YEARS)),
                    ("n", str(rng.randint(1, 999))), ("k", rng.choice(HELD_CODE if held else CODE)), ("x", text)):
        q = q.replace("{" + slot + "}", v)
    return q, answer


LATIN = """bonjour comment allez vous; guten tag wie geht es dir; hola como estas; ciao come stai; wie heisst die hauptstadt; quelle heure est il; que hora es; buenos dias amigo; was ist das; je ne sais pas;
    lorem ipsum dolor sit amet; carpe diem; veni vidi vici; das wetter ist schoen; no entiendo nada; ich habe hunger; dove sei; merci beaucoup"""
HELD_LATIN = "wo ist der bahnhof; comment tu t'appelles; donde esta la playa; alea iacta est; ich verstehe kein wort; mi casa es tu casa"


def senseless(rng, held):
    """Text without sense: made-up words, keys, signs, other languages, words in a heap."""
    import tools
    r = rng.random()
    if r < 0.3:
        return " ".join(word_of_nothing(rng, held) for _ in range(rng.randint(1, 6))), SENSE
    if r < 0.5:
        letters = "qwertyuiopasdfghjklzxcvbnm"
        at = rng.randrange(len(letters) - 4)
        return rng.choice((letters[at:at + rng.randint(4, 8)], "".join(rng.choice(letters) for _ in range(rng.randint(6, 14))), "asdf" * rng.randint(1, 3), rng.choice("abhxz") * rng.randint(4, 12))), SENSE
    if r < 0.62:
        return "".join(rng.choice("?!.,;:#*+-=/&%$()[]<>@~^_|") for _ in range(rng.randint(2, 9))) + rng.choice(("", "", " " + str(rng.randint(0, 999)))), SENSE
    if r < 0.75:
        return rng.choice(lines(HELD_LATIN if held else LATIN)), SENSE
    heap = [word(rng, held) if held else rng.choice(tools.KNOWN) for _ in range(rng.randint(3, 7))]
    return " ".join(heap), SENSE


def word_of_nothing(rng, held):
    import tools
    while True:
        x = tools.spelled(rng) if rng.random() < 0.6 else tools.made_up(rng)
        if (len(x) % 3 == 1 and len(x) > 3) == held and x.lower() not in every_word():
            return x


@functools.lru_cache(1)
def every_word():
    return {x.lower() for x in corpus.words_of_facts()}


KINDS = {"sums": (sums, 24), "forms": (forms, 18), "counting": (counting, 8), "names": (named, 20), "open": (lambda r, h: asked(r, h, FACT), 17),
         "tasks": (lambda r, h: asked(r, h, TASK), 9), "senseless": (senseless, 4)}


@functools.lru_cache(1)
def forbidden():
    """A pattern of every held-out wording of this file, whatever fills its slots."""
    all_ = [t for _, kept in OPEN.values() for t in kept] + HELD_MORE + HELD_AROUND
    pats = [".+?".join(re.escape(corpus.normal(p)) for p in re.split(r"\{\w*\}", t) if corpus.normal(p)) for t in all_]
    return re.compile("|".join(r"\b" + p + r"\b" for p in pats if " " in p))


@functools.lru_cache(1)
def single():
    return [corpus.normal(x).removeprefix("the ") for x, _, _ in f.SINGLE] + ["hamlet", "romeo and juliet", "don quixote", "war and peace", "mona lisa"]


def question(rng):
    """(question, answer, thought) for training."""
    kind = rng.choices(list(KINDS), [n for _, n in KINDS.values()])[0]
    while True:
        q, answer = KINDS[kind][0](rng, False)
        if kind == "senseless":
            q = q if rng.random() < 0.7 else q + rng.choice("?!.")
        elif kind in ("tasks",):
            q = (rng.choice(("", "", "", "please ", "hey, ", "ok, ", "now ")) + q) if rng.random() < 0.5 else q
            q = (corpus.up(q) if rng.random() < 0.6 else q) + rng.choice(("", "", ".", "?", "!"))
        else:
            q = corpus.dress(rng, q, rng.random() < 0.75)
        n = corpus.normal(q)
        if not forbidden().search(n) and not any(s in n for s in single()):
            return q, answer, "The question is about something that I do not know." if answer == FACT else "I have not learned to do that."


def held_out(seed=23, n=100):
    """n questions to decline, in wordings and about names and numbers that training never has."""
    rng, out, seen = random.Random(seed), [{"question": "100 * 100", "accept": ACCEPT, "kind": "forms"}], set()
    kinds = [k for k, (_, share) in KINDS.items() for _ in range(share)]
    while len(out) < n:
        kind = kinds[len(out) * 37 % len(kinds)]
        q, _ = KINDS[kind][0](rng, True)
        if corpus.normal(q) in seen or any(s in corpus.normal(q) for s in single()):
            continue
        seen.add(corpus.normal(q))
        if kind != "senseless":
            q = (corpus.up(q) if rng.random() < 0.7 else q) + ("" if q.endswith(("=", "?")) or kind == "tasks" else rng.choice(("?", "?", "")))
        out.append({"question": q, "accept": ACCEPT, "kind": kind})
    return out


def main():
    with open(sys.argv[1], "w") as out:
        for e in held_out():
            out.write(json.dumps(e, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
