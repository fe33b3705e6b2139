"""Wordings of questions for tools that are put together from a frame and what is asked for,
so that no wording is learned as a whole: a kind gives its things in up to five forms, and every
frame takes one of them.

`(a|b)` is one of several; `{slot}` is a value of the question; `*` in a frame is where the thing goes."""
import corpus

# A thing as a noun: "the date".
NOUN = """(tell|give|show|bring|get|find|fetch) me *|(can|could|will|would) you (tell|give|show|get|find|bring|fetch) me *
(can|could|will|would) you (find|look up|get|check|fetch|name) *( for me|)|i (need|want|would like|must have|should have) *|i (would like|want|have) to (know|see|hear|have) *
(please |)(find|get|look up|check|show|name|report|fetch) *( for me|)|what (is|about|would be) *|how about *|*, please|*( please|)|do you (know|have) *|let me (know|have|see|hear) *
my (friend|mother|boss|teacher|brother|neighbour|daughter|book|work) (asks for|wants|needs|asks) *|may i (have|see|know|ask) *|i am looking for *|i forgot *|who can tell me *|one thing: *
help me with *|i am interested in *|we (need|want|are looking for) *|is there *|there must be *|it is about *|i ask for *|use your tools (for|to find) *|(find out|search for|look for) *
your job: *|task: *|next: *|i was asked for *|could i have *|would you mind giving me *|a question about *|tell us *|somebody wants *|it would help to know *|i cannot find *"""
# As a clause: "which day it is".
CLAUSE = """(tell|show) me *|do you know *|(can|could|will|would) you (tell me|find out|check|see|say|look up|look|show me) *|i (want|would like|need|have|must|hope) to (know|find out|see|learn) *
(please |)(tell me|check|find out|see|look|look up|say|show me) *|i wonder *|i do not know *|let me know *|my (friend|mother|boss|teacher|brother|neighbour|daughter) (asks|wants to know|must know) *
say *|any idea *|is it known *|who knows *|we want to know *|i was asked *|i forgot *|nobody here knows *|have a look *|i am curious *|it is important to know *|use your tools to find out *
would you mind telling me *|are you able to say *|how can i find out *|tell us *|what i want to know is *|the question is *|i have no idea *|somebody asks *"""
# As a question of its own: "which day is it".
QUESTION = """*|*|*|*|tell me: *|hello, *|quick question: *|i have a question: *|can you help me, *|my friend asks: *|well, *|excuse me, *|the question is: *|do you know: *|listen, *|next question: *
think about it: *|one more thing, *|help, *|could you say: *|a short one: *|i need an answer: *|look it up: *|check it: *|what do you say, *"""
# As something to do: "set a timer".
ACTION = """*|*|(please |)*|(please |)* for me|(can|could|will|would) you (please |)*( for me|)|i (want|need|would like|ask) you to *|now *|be so kind and *|help me and *|* please|your job: *|task: *|next: *
would you mind, *|try to *|i would be glad if you could *|let us *|do this: *|i have to *, do it for me|you should *|it is time to *|go and *|my (friend|boss|mother|teacher) wants you to *"""


def _split(text):
    """The frames of a text: parts between bars that are in no parentheses."""
    out = []
    for line in text.splitlines():
        depth, part = 0, ""
        for c in line:
            depth += (c == "(") - (c == ")")
            if c == "|" and depth == 0:
                out.append(part)
                part = ""
            else:
                part += c
        out.append(part)
    return out


FRAMES = {"noun": _split(NOUN), "clause": _split(CLAUSE), "question": _split(QUESTION), "action": _split(ACTION)}

GOING = """i am (going|travelling|flying|driving|moving|on my way) to {city}|we (go|fly|travel|drive|move) to {city}( tomorrow| today| soon|)|i (live|work|stay) in {city}|i am in {city}( now|)
my (sister|friend|boss|family|uncle) (lives|is|works|stays) in {city}|i want to (visit|see|call|phone|write to somebody in) {city}|think of {city}|{city} is where i am|i am from {city}
my (train|flight|bus) goes to {city}|i have a (friend|meeting|house|job) in {city}|take {city}|about {city}|next stop {city}|(people|friends) in {city}|{city}"""

THINGS = {
    "weather": {
        "noun": """the weather (in|for|of|at|around) {city}|the temperature (in|of|for) {city}|(a|the|your|some|today's) (weather report|forecast|report of the weather|weather) (for|of|from|in) {city}|{city}'s weather
how the weather in {city} is|the (current|present|latest) weather (in|for) {city}|news about the weather in {city}|the degrees in {city}|the conditions (in|outside in) {city}|the rain in {city}|the sky (over|above) {city}""",
        "clause": """how (warm|cold|hot|wet|windy|dry|sunny) (it is in {city}|{city} is)( today| now| right now|)|what the weather (in {city} is|is in {city}|is like in {city}|in {city} does|in {city} looks like)
(if|whether) it (rains|snows|is sunny|is cold|is warm|will rain|freezes|is dry|gets warm) in {city}( today| now|)|(if|whether) the sun (shines|is out) (in|over) {city}|how {city}'s weather is
what it is like (outside |)in {city}|(if|whether) {city} has (rain|snow|sun|fog|a storm|good weather)|which weather {city} has|how many degrees {city} has|what sort of day it is in {city}""",
        "question": """how (warm|cold|hot|wet|windy|dry|sunny) (is it in {city}|is {city})( today| now| right now|)|what (sort of |)weather (does {city} have|is it in {city}|do you find in {city})( today| now| right now|)
(is|will) it (rain|be sunny|sunny|raining|snowing|cold|warm|be cold|be warm|freezing|dry) in {city}|does (it rain|it snow|the sun shine|the wind blow) in {city}|is the sun (out|up|bright|visible) in {city}
what is it like (outside |)in {city}(, cold or warm|, wet or dry|)|(has|does) {city} (have |)(rain|snow|sun|fog|a storm)|which weather has {city}|how many degrees has {city}|does one need (a coat|an umbrella|boots) in {city}
is there (rain|snow|sun|ice|fog|wind) in {city}""",
        "there": """(will|does|is) it (rain|raining|snow|cold|warm|sunny) there|how (warm|cold|hot|wet) is it there|what is the (weather|temperature) there|what weather is there|what (will|is) the weather( be|) like( there|)
tell me the weather|is the sun out there|how is the weather( there|)|do i need (a coat|an umbrella)|(shall|should) i take (a coat|an umbrella|a hat)|i want to know the weather|is it (warm|cold|wet|nice) (outside|there)|warm or cold"""},
    "time": {
        "noun": """the (time|local time|current time|hour|exact time|time of day) (in|for|of|at) {city}|{city}'s (time|clock|hour)|the clock (in|of) {city}|{city} time|the present hour in {city}|what the clock shows in {city}""",
        "clause": """what time (it is|they have|people have|one has|we have) in {city}( now| right now|)|how late (it is|they have it) in {city}|which (hour|time) it is in {city}|what the clock (in {city} (says|shows)|says in {city})
(if|whether) it is (day|night|morning|evening|late|early|noon) in {city}|what hour they have in {city}|how early it is in {city}|what time {city} has""",
        "question": """what time (is it|do they have|do people have|does one have) in {city}( now| right now|)|how late is it in {city}( now|)|(which|what) hour is it in {city}|what (does the clock|do the clocks) (say|show) in {city}
is it (day|night|morning|evening|late|early|noon|midnight) in {city}|do they sleep in {city}|what time has {city}|how (early|late) do they have it in {city}|what is the (time|hour) (in|at) {city}""",
        "there": """what time is it( there| for them| for her| for him|)|how late is it( there|)|is it (late|early|night|day|morning) (there|for them)|what time do they have( there|)|which hour do they have|what is the (time|local time|hour)( there|)
tell me the time( there|)|i need the (time|local time)|what does the clock say there|do they sleep( there|)|what hour is it there|is it too late to call"""},
    "date": {
        "noun": "the date( of today| today|)|today's date|the (current|present|exact|right) (date|day)|the calendar date|the day( of today| of the month|)|the day and the month|the date on the calendar",
        "clause": """(which|what) day (it is|we have|is today|this is|today is)|what the date is( today|)|what date (it is|we have|today is)|(which|what) date (this day has|is today)|what the calendar (says|shows|tells)
what today's date is|what day of the (month|week|year) it is|what to write as the date|which day of (may|the month|june) we have""",
        "question": """(which|what) day (is it|do we have|is today|have we got)( today|)|what date (is it|do we have|is today|have we)|what is (today's date|the date|the day)( today|)|what does (the|your|my) calendar (say|show|tell)
what day of the (month|week|year) (is it|do we have)|is it already (monday|may|june|friday), what is the date|which date (has this day|is it|is today)|what do i write as (the|today's) date""",
        "action": "(check|look at|read|open|ask|use) (the|your|a) calendar|(check|tell|say|look up|find out|give me|write|name) (the date|today's date|the day)|(say|tell me|find out) (which|what) (day|date) (it is|we have)"},
    "sums": {
        "noun": "{sum}|{sum}|(the |)(result|value|answer|outcome) (of|for|to) {sum}|the number that is {sum}|what {sum} is|the calculation of {sum}|the solution of {sum}",
        "clause": "how much {sum} (is|makes|gives|comes to)|what {sum} (is|makes|gives|comes to|equals)|what (one gets|comes out|i get|you get) for {sum}|(which|what) number {sum} (is|makes)|how many {sum} are",
        "question": """how much (is|makes|gives|would be) {sum}|what (is|makes|gives|would be|does one get for|do you get for|comes out of|is the result of) {sum}|(which|what) number (is|makes|equals) {sum}|{sum} (is|makes|gives) what|{sum}
how much would {sum} (be|make|give)|{sum} (is|makes) how much""",
        "action": """(calculate|compute|work out|solve|do|evaluate|find|find out|determine|check|figure out) {sum}|(calculate|compute|work out|find|determine) (how much {sum} is|what {sum} is|the result of {sum}|the value of {sum})
do (the|this|a) (sum|calculation|math|arithmetic): {sum}|(calculate|compute|solve) this: {sum}|use the calculator (for|on): {sum}|do {sum} in your head"""},
    "timer": {
        "noun": "a (timer|countdown|alarm|signal|reminder) (of|for|in|after) {minutes} minutes|a {minutes} minute(s|) (timer|countdown|alarm)|{minutes} minutes on the (clock|timer)|a call in {minutes} minutes|{minutes} minutes",
        "clause": "when {minutes} minutes (are over|are up|have passed|have gone|are gone|have run out)|(as soon as|after) {minutes} minutes (are over|have passed|are up)",
        "action": """(set|start|run|make|begin|prepare) a (timer|countdown|alarm) (of|for|to|with) {minutes} minutes|(set|turn|put) the (timer|alarm|clock) (to|for|on) {minutes} minutes|(wake|call|remind|warn|tell|alert) me (in|after) {minutes} minutes
(ring|beep|count|wait|call|shout) (for |in |after |){minutes} minutes|(let me know|tell me|say|shout|beep|ring|warn me) when {minutes} minutes (are over|have passed|are up|have gone)|count down {minutes} minutes|measure {minutes} minutes
give me {minutes} minutes and (ring|call me|beep)|time {minutes} minutes""",
        "question": """my (eggs|soup|cake|bread|tea|noodles|potatoes|class|break|train|nap|meeting) (need|needs|take|takes|lasts|is in|starts in|must have) {minutes} minutes(, set a timer|, please ring|, call me|, start a timer|)
i (sleep|rest|leave|run|have a break|must go|will read|train) (for|in) {minutes} minutes(, set a timer|, wake me|, call me|, ring then)|can i have {minutes} minutes|will you ring in {minutes} minutes"""},
    "translate": {
        "noun": """the {language} (word|name|term|expression|translation) (for|of) {text}|{text} in {language}|the translation of {text} (to|into) {language}|{text} (translated |)(to|into) {language}|what {text} is in {language}
{text} as they say it in {language}|a {language} word for {text}|the word for {text} in {language}""",
        "clause": """how to (say|write|spell) {text} in {language}|(how|what) (people|they|one|you) (say|call|write|use) (for |){text} in {language}|what {text} (is|means|is called|becomes|would be) in {language}|how {text} (is said|is written|goes|reads|sounds) in {language}
(which|what) word {language} has for {text}|what the {language} word for {text} is|what one says for {text} in {language}""",
        "question": """how (do|does|would|can|should) (you|one|i|they|people|we) (say|write|call|spell) {text} in {language}|what (is|would be|means|does one say for) {text} in {language}|how is {text} (said|written|spelled) in {language}|what is {text} (called|named) in {language}
(which|what) word (has {language}|does {language} have) for {text}|(which|what) word (is there|do people use|do you use|stands) for {text} in {language}|what (do|would) (they|people|you) (call|say for|use for) {text} in {language}|is there a {language} word for {text}
how does {text} (sound|read|look|go) in {language}|in {language}, how do (i|you|they) (say|call) {text}""",
        "action": """(translate|turn|change|bring|convert|move|render) {text} (to|into) {language}|(say|write|spell|express|repeat) {text} in {language}|(find|look up|search) {text} in (a|the) {language} dictionary|(find|give|look up) the {language} (word|term) for {text}
translate (to|into) {language}: {text}|translate the word {text} (to|into) {language}|take {text} and translate it (to|into) {language}"""},
    "random": {
        "noun": """(a|any|some|one|a random|a lucky|an unknown|a surprising) (number|whole number|integer) (between|from|of) {low} (and|to|up to) {high}|(a|some) number of at least {low} and at most {high}|one of the numbers (from|between) {low} (and|to) {high}
(a|some) (random |)number, {low} (at least|or more|to) (and |){high}( at most| or less|)|a number in the range {low} to {high}|chance's number from {low} to {high}""",
        "clause": "(which|what) number (chance|luck|the dice) (gives|picks|shows) (between|from) {low} (and|to) {high}|what number you (pick|choose|draw|think of) (between|from) {low} (and|to) {high}",
        "question": "(which|what) number (do you|would you|does chance|does luck) (pick|choose|draw|give|take) (between|from) {low} (and|to) {high}|{low} to {high}, (which number|what comes)|what number comes (between|from) {low} (and|to) {high}",
        "action": """(choose|pick|draw|roll|take|think of|find|generate|make|get|select|throw|guess|produce|name) (a|any|some|one|a random) (number|whole number|integer)(,|) (between|from|of) {low} (and|to|up to) {high}
let (chance|luck|the dice|fate) (choose|decide|pick|find|speak)(:|) (a number |some number |)(from|between) {low} (and|to) {high}|(roll|throw) (the dice|a dice|a die) (from|between) {low} (and|to) {high}|(choose|pick|draw) between {low} and {high}"""},
}
TOPICS = """(look up|search for|find|google|check) {topic}( for me|)|(tell|show) me (something |everything |more |)about {topic}|what (do you know|can you find|is known|is there|does one know) about {topic}
(find|search|look up) (something|facts|everything|more) (about|on) {topic}|i (want|need|would like) to (know|read|hear) (something |more |)about {topic}|who or what is {topic}|what is {topic}|{topic}( please|)
do you know (anything|something) about {topic}|i have never heard of {topic}|what does {topic} mean|(an article|some facts|information) (about|on) {topic}|explain {topic}"""
for _forms in THINGS.values():
    for _name, _text in _forms.items():
        _forms[_name] = _split(_text)
THINGS["calculate"] = THINGS["arithmetic"] = THINGS.pop("sums")
GOING, TOPICS = _split(GOING), _split(TOPICS)


def wording(rng, kind):
    """A wording of a kind's question, with its slots."""
    forms = THINGS[kind]
    form = rng.choice(list(forms))
    thing = rng.choice(forms[form])
    if form == "there":
        frame = rng.choice(GOING) + rng.choice((", ", ", ", ": ", ". ", " and ask: ", "; ", ", so ", " - ")) + "*"
    else:
        frame = rng.choice(FRAMES[form])
    return corpus.expand(rng, frame.replace("*", thing))
