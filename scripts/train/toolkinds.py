"""The kinds of tools that dialogues offer, how they are asked for, and what they answer.

A kind has names, descriptions and parameters of which every dialogue draws others, and
wordings of questions for training (`ask`) and for the held-out questions (`held`) only.
`(a|b)` is one of several; `{slot}` is a value of the question."""

# slot -> (names of the parameter, JSON type, descriptions)
CITY = (["city", "location", "place", "town", "city_name", "where"], "string",
        ["Name of the city", "The city", "City name", "Which city", "The place to look at", "City, e.g. Paris"])
NUMBER = "number"

KINDS = {
    "weather": dict(
        names=["get_weather", "weather", "current_weather", "weather_report", "forecast", "get_forecast", "getWeather",
               "fetch_weather", "weather_in_city", "city_weather"],
        texts=["Get the weather of a city", "Current weather in a city", "Returns the weather for a place", "Tells the weather",
               "Get the current weather for a given location", "Weather report of a city", "Looks up the weather"],
        slots={"city": CITY},
        ask=["(what is|what's|how is|how's) the weather (in|like in|for) {city}", "weather (in|for) {city}", "what is the weather like in {city}",
             "(tell|give|show) me the weather (in|for|of) {city}", "is it (raining|sunny|cold|warm|hot|windy|snowing) in {city}", "how (warm|cold|hot) is it in {city}",
             "what is the temperature in {city}", "(do i need|should i take) (an umbrella|a coat|a hat) in {city}", "get the weather (for|of) {city}",
             "{city} weather", "what will the weather be in {city}", "i (am in|live in|want to go to) {city}, how is the weather", "check the weather in {city}",
             "i need the weather (of|for) {city}", "how does the weather look in {city}", "what weather (is there|do they have) in {city}", "will it rain in {city}",
              "could you (look up|find out|tell me) the weather (in|for) {city}",
              "i am going to {city} tomorrow, (will it be warm|what should i wear|is it cold)", "how is the sky over {city}",
              "my friends in {city} want to know the weather", "(is|will) it (be |)(dry|foggy|cloudy|stormy) in {city}( today| now|)",
              "before we go to {city}, tell me the weather", "please look outside in {city} for me",
              "we fly to {city} today, (do we need a coat|is there snow|how hot is it)", "what can you say about the weather in {city}",
              "how many degrees (are there|is it|do they have) in {city}",
              "i would like to know (how warm it is|the temperature|the weather) in {city}", "weather report: {city}",
              "what is it like in {city}( today|), (rainy|sunny|wet) or dry", "{city}: (rain|snow|sun) or not", "are there clouds over {city}",
              "tell me if it (rains|snows) in {city}", "what are they wearing in {city}, is it (cold|warm) there",
              "i will visit {city}, how is it there", "does {city} have (good|bad) weather( today|)"],
        held=["what kind of weather does {city} have right now", "could you check what the weather in {city} is like", "please find out how warm {city} is today",
              "i am travelling to {city}, will it rain there", "is the sun shining in {city}", "give me a weather report for {city}",
              "before i leave: what is it like outside in {city}, warm or cold"]),
    "time": dict(
        names=["get_time", "clock", "current_time", "time_in_city", "local_time", "world_clock", "getTime", "what_time", "get_local_time"],
        texts=["Get the time in a city", "Current local time of a city", "Returns the time for a place", "Tells what time it is",
               "World clock", "Get the current local time in a given location", "Looks up the time of day"],
        slots={"city": CITY},
        ask=["what time is it in {city}", "(what is|what's) the (time|local time|current time) in {city}", "(tell|give|show) me the time in {city}", "time in {city}",
             "how late is it in {city}", "what does the clock say in {city}", "get the (time|local time) (for|of|in) {city}", "{city} time", "i need the time in {city}",
             "what is the hour in {city}", "check the time in {city}", "can you tell the time in {city}", "is it (late|early) in {city}",
              "could you (look up|find out|tell me) the time (in|for) {city}", "my (mother|brother|sister) lives in {city}, what time does she have",
              "i must phone somebody in {city}, is it (night|day|morning) there", "what do the clocks in {city} say", "is {city} asleep now",
              "how many hours is it in {city}", "the time in {city}, please", "in {city}, what time is it( now| right now|)",
              "please find out the hour in {city}", "do they have morning or evening in {city}", "what time do people in {city} have",
              "i would like to know (the hour|what time it is|the time) in {city}",
              "when i call {city} now, (is it night there|what time is it there)", "local time of {city}", "at what time are we in {city}",
              "check which hour it is in {city}", "tell me how late they have it in {city}", "is it past noon in {city}",
              "we have a meeting in {city}, (what time is it there|how late is it over there)"],
        held=["could you tell me what time they have in {city} right now", "people in {city}: what time is it for them", "i want to call a friend in {city}, how late is it there",
              "please look at the clock for {city}", "do you know the current hour in {city}"]),
    "date": dict(
        names=["get_date", "today", "current_date", "calendar", "date", "getDate", "todays_date", "get_current_date"],
        texts=["Get the date of today", "Current date", "Returns today's date", "Tells which day it is", "Today's calendar date"],
        slots={},
        ask=["what (is the date|day is it|date is it)( today|)", "what is today's date", "(tell|give) me (the date|today's date)", "today's date", "which (date|day) is (it|today)",
             "what is the current date", "i need the date( of today|)", "get the (current date|date)", "what is the day today", "check the date",
              "could you (look up|find out|tell me) the date", "which date do we have( now|)", "what is written on the calendar",
              "i forgot (the date|what day it is)", "look at the calendar( for me|)", "what day of the month is it", "please find out today's date",
              "i would like to know the date", "is it (monday|friday|may|june) today, what date is it", "the date, please",
              "which day of the year is it", "do you have the date( of today|)", "what shall i write as the date",
              "i have to sign this, what is the date", "can you check today's date", "say which day it is", "on which day are we",
              "the calendar, what does it show"],
        held=["could you check which day we have today", "please tell me the date of today", "what does the calendar say for today", "do you know what date we have"]),
    "calculate": dict(
        names=["calculator", "calculate", "calc", "evaluate", "compute", "math", "eval_expression", "do_math", "evaluate_expression", "run_calculation"],
        texts=["Evaluate an arithmetic expression", "Calculator", "Computes the value of an expression", "Does arithmetic", "A simple calculator",
               "Calculate the result of a mathematical expression", "Performs calculations"],
        slots={"expression": (["expression", "formula", "input", "expr", "calculation", "query"], "string",
                              ["The expression", "What to compute", "An arithmetic expression", "Expression, e.g. 2 + 3", "The formula to evaluate"])},
        ask=["(what is|what's|how much is|calculate|compute|work out|tell me) {sum}", "{sum}", "{sum} =", "can you (calculate|compute) {sum}", "i need {sum}", "(find|get) {sum}",
             "please (calculate|compute) {sum}", "what (do i get for|comes out of) {sum}", "use the calculator: {sum}", "solve {sum}", "how much do i get for {sum}",
             "evaluate {sum}", "do the math: {sum}", "calculate {sum} for me",
              "could you (compute|find|do) {sum}( for me|)", "i would like to know {sum}", "tell me how much {sum} (makes|is worth)",
              "please find out {sum}", "for my work i need {sum}", "my teacher asks (for|what is) {sum}", "what number is {sum}",
              "i cannot do {sum}, can you", "the result of {sum}, please", "how many are {sum}", "add this up for me: {sum}", "let us compute {sum}",
              "what does {sum} (make|come to|equal)"],
        held=["could you work out how much {sum} is", "i have to know what {sum} gives", "my homework asks for {sum}, what is it", "please do this calculation: {sum}",
              "find out the result of {sum}"]),
    "arithmetic": dict(
        names=["arithmetic", "basic_math", "two_number_math", "operate", "apply_operation", "number_operation", "simple_math"],
        texts=["Apply an operation to two numbers", "Arithmetic with two numbers", "Add, subtract, multiply or divide two numbers", "Computes with two numbers"],
        slots={"operation": (["operation", "op", "operator", "action"], ["add", "subtract", "multiply", "divide"], ["The operation", "What to do", "Which operation"]),
               "a": (["a", "x", "first", "left", "number1"], NUMBER, ["The first number", "First operand", "Left number"]),
               "b": (["b", "y", "second", "right", "number2"], NUMBER, ["The second number", "Second operand", "Right number"])},
        ask=["(what is|what's|how much is|calculate|compute|work out|tell me) {sum}", "{sum}", "{sum} =", "can you (calculate|compute) {sum}", "i need {sum}", "(find|get) {sum}",
             "please (calculate|compute) {sum}", "what (do i get for|comes out of) {sum}", "solve {sum}", "how much do i get for {sum}", "do the math: {sum}",
              "could you (compute|find|do) {sum}( for me|)", "i would like to know {sum}", "tell me how much {sum} (makes|is worth)",
              "please find out {sum}", "what number is {sum}", "i cannot do {sum}, can you", "the result of {sum}, please",
              "what does {sum} (make|come to|equal)", "for my work i need {sum}", "my teacher asks (for|what is) {sum}"],
        held=["could you work out how much {sum} is", "i have to know what {sum} gives", "please do this calculation: {sum}", "find out the result of {sum}"]),
    "lookup": dict(
        names=["lookup", "search", "wiki", "find_fact", "encyclopedia", "search_facts", "knowledge_base", "look_up", "web_search", "search_web"],
        texts=["Look up a fact", "Search for facts", "Finds facts about a topic", "Search the encyclopedia", "Looks something up", "Search the knowledge base for a topic"],
        slots={"query": (["query", "topic", "q", "text", "subject", "search_term"], "string", ["What to look up", "The topic", "Search text", "Topic to search for"])},
        ask=[], held=[]),        # asked as the facts are
    "capital": dict(
        names=["get_capital", "capital_of", "find_capital", "lookup_capital", "capital", "country_capital", "capital_city"],
        texts=["Get the capital of a country", "Finds the capital city of a country", "Returns the capital", "Looks up the capital of a country"],
        slots={"country": (["country", "nation", "state", "country_name", "land"], "string", ["Name of the country", "The country", "Which country"])},
        ask=[], held=[]),        # likewise
    "timer": dict(
        names=["set_timer", "timer", "start_timer", "countdown", "set_alarm", "remind_me", "setTimer"],
        texts=["Set a timer", "Starts a timer", "Set a timer for some minutes", "Start a countdown", "Rings after some minutes"],
        slots={"minutes": (["minutes", "duration", "mins", "length", "time_minutes"], "integer", ["How many minutes", "Number of minutes", "Length in minutes", "Minutes to wait"])},
        ask=["(set|start) a timer (for|of) {minutes} minutes", "timer (for|of|) {minutes} minutes", "(remind|wake|call) me in {minutes} minutes", "{minutes} minutes timer",
             "start a countdown of {minutes} minutes", "i need a timer (for|of) {minutes} minutes", "set the timer to {minutes} minutes", "(ring|beep) in {minutes} minutes", "wait {minutes} minutes",
             "can you set a timer for {minutes} minutes", "give me {minutes} minutes",
              "could you (set|start) a (timer|countdown) (for|of) {minutes} minutes", "tell me after {minutes} minutes",
              "i have to leave in {minutes} minutes, (remind me|call me)", "my (cake|bread|tea|soup) needs {minutes} minutes( in the oven|)",
              "say when {minutes} minutes have gone by", "please ring after {minutes} minutes",
              "the (pasta|rice) must cook {minutes} minutes, (help me|watch the time)", "{minutes} minutes from now, wake me",
              "count {minutes} minutes( for me|)", "i want to (sleep|rest|read) for {minutes} minutes, call me then",
              "let it ring in {minutes} minutes", "alarm in {minutes} minutes", "i would like to be called in {minutes} minutes",
              "do not let me forget: {minutes} minutes", "in {minutes} minutes, please (beep|say so)", "measure {minutes} minutes for me"],
        held=["could you let me know when {minutes} minutes are over", "my eggs take {minutes} minutes, please set a timer", "i would like a timer of {minutes} minutes",
              "please tell me when {minutes} minutes have passed"]),
    "translate": dict(
        names=["translate", "translator", "translate_word", "dictionary", "get_translation", "translate_text"],
        texts=["Translate a word", "Translates text into a language", "A dictionary", "Translate text to another language", "Finds the word in another language"],
        slots={"text": (["text", "word", "phrase", "source", "input"], "string", ["The word", "What to translate", "Text to translate"]),
               "language": (["language", "target", "to", "target_language", "lang"], "string", ["The language", "Language to translate to", "Target language"])},
        ask=["translate {text} (to|into) {language}", "(what is|what's) {text} in {language}", "how do (you|i) say {text} in {language}", "{text} in {language}",
             "what is the {language} word for {text}", "give me {text} in {language}", "say {text} in {language}", "i need the {language} (word for|translation of) {text}",
             "can you translate {text} (to|into) {language}", "the {language} for {text}", "please translate {text} into {language}",
              "could you translate {text} into {language}( for me|)", "tell me the {language} for {text}",
              "how would (a speaker of {language}|they) say {text} in {language}", "i need to know {text} in {language}",
              "which {language} word means {text}", "what do they call {text} in {language}", "in {language}, what is {text}",
              "please find {text} in {language}", "how do people write {text} in {language}", "what would {text} be in {language}",
              "my friend speaks {language}, how do i tell her {text}", "i am learning {language}: what is {text}", "say it in {language}: {text}",
              "look up {text} in a {language} dictionary", "turn {text} into {language}", "{language}: {text}",
              "the word {text}, in {language} please", "can one say {text} in {language}, and how"],
        held=["which word do they use for {text} in {language}", "could you put {text} into {language} for me", "how is {text} called in {language}", "i want to say {text} in {language}, how does that go"]),
    "random": dict(
        names=["random_number", "random", "roll", "pick_number", "dice", "get_random", "random_int"],
        texts=["Get a random number", "Picks a random number between two numbers", "Random integer from a range", "Draws a number"],
        slots={"low": (["min", "low", "from", "start", "lower", "minimum"], "integer", ["The smallest number", "Lower bound", "Smallest value"]),
               "high": (["max", "high", "to", "end", "upper", "maximum"], "integer", ["The largest number", "Upper bound", "Largest value"])},
        ask=["(give|pick|tell) me a (random number|number) (between|from) {low} (and|to) {high}", "(pick|draw|choose|roll) a (random number|number) (between|from) {low} (and|to) {high}", "random number from {low} to {high}",
             "a random number between {low} and {high}", "i need a random number between {low} and {high}", "roll from {low} to {high}", "any number from {low} to {high}",
             "get a random number (between|from) {low} (and|to) {high}",
              "could you (draw|roll|pick) a number (between|from) {low} (and|to) {high}( for me|)",
              "choose any number (between|from) {low} (and|to) {high}", "i want some number, {low} to {high}",
              "let luck find a number (between|from) {low} (and|to) {high}", "draw one number from {low} up to {high}",
              "a number, not below {low} and not above {high}", "give me a number of at least {low} and at most {high}",
              "throw the dice: {low} to {high}", "surprise me with a number from {low} to {high}",
              "we play: a number (between|from) {low} (and|to) {high}", "some number that lies between {low} and {high}",
              "the lowest is {low}, the highest is {high}: pick one", "take a number, {low} or more and {high} or less",
              "which number comes out, from {low} to {high}", "please choose: {low} to {high}", "i need luck: any number from {low} to {high}"],
        held=["could you choose some number between {low} and {high} for me", "please draw a number, {low} at least and {high} at most", "let chance decide: a number from {low} to {high}"]),
}

# These are not offered together: either could answer the other's questions.
RIVALS = [{"calculate", "arithmetic"}, {"lookup", "capital"}]

OPERATIONS = {   # operation -> (sign, wordings with numbers)
    "add": ("+", ["{a} plus {b}", "{a} + {b}", "{a} + {b}", "{a}+{b}", "the sum of {a} and {b}", "{a} and {b} added"]),
    "subtract": ("-", ["{a} minus {b}", "{a} - {b}", "{a} - {b}", "{a}-{b}", "{a} less {b}"]),
    "multiply": ("*", ["{a} times {b}", "{a} * {b}", "{a} * {b}", "{a}*{b}", "{a} multiplied by {b}", "the product of {a} and {b}"]),
    "divide": ("/", ["{a} divided by {b}", "{a} / {b}", "{a} / {b}", "{a}/{b}", "{a} over {b}"]),
}

TOWNS = """Hamburg Munich Cologne Frankfurt Dresden Leipzig Zurich Geneva Basel Milan Naples Venice Turin Florence Bologna Barcelona Seville
Valencia Porto Lyon Marseille Nice Bordeaux Toulouse Manchester Liverpool Glasgow Edinburgh Leeds Bristol Oxford Cambridge Antwerp
Rotterdam Utrecht Bergen Gothenburg Malmo Aarhus Tampere Krakow Gdansk Salzburg Graz Istanbul Izmir Dubai Mumbai Chennai Kolkata
Shanghai Osaka Kyoto Nagoya Busan Sydney Melbourne Brisbane Perth Auckland Toronto Montreal Vancouver Calgary Boston Chicago Houston
Dallas Denver Seattle Miami Atlanta Phoenix Detroit Lagos Durban Casablanca Alexandria""".split() + [
    "New York", "Los Angeles", "San Francisco", "Las Vegas", "Cape Town", "Hong Kong", "Rio de Janeiro", "Sao Paulo", "San Diego", "New Orleans"]
HELD_TOWNS = """Stuttgart Bremen Hanover Verona Genoa Granada Malaga Strasbourg Sheffield Belfast Cardiff Ghent Eindhoven Odense Turku Wroclaw
Innsbruck Antalya Karachi Bangalore Kobe Adelaide Ottawa Portland Austin Memphis Salem Nairobi Lima Oslo Warsaw Bangkok Cairo""".split() + [
    "Salt Lake City", "Kansas City", "Santa Fe"]
WORDS = """water bread house tree friend book school night morning love time year hand head heart milk cheese apple table door window street
garden flower summer winter spring rain snow wind fire stone river mountain bird horse cow sheep pig duck king queen child mother father
brother sister teacher doctor answer question song music word letter number colour red blue green yellow black white big small good bad
old new yes no hello goodbye thanks please""".split()
HELD_WORDS = "dog cat sun moon star fish egg salt sugar car bus train boat island forest bridge chair lamp happy sad".split()
# Parts of words of any spelling, of which made-up places and words consist.
ONSETS = ["", ""] + "b br c ch cl cr d dr f fl fr g gl gr h j k kr l m n p pl pr qu r s sc sh sl sp st str sw t th tr v w wr y z".split()
VOWELS = "a e i o u a e i o u ai au ea ee ei ie oo ou ue y".split()
CODAS = ["", "", "", ""] + "n r l s t m d g p ck ng nd rt st rd lt ss gg x ch sk th ns rg ld ff".split()
LANGUAGES = "French German Italian Spanish Portuguese Polish Greek Swedish Danish Hungarian Japanese Chinese Korean Turkish Russian Arabic Dutch English".split()
SKIES = "sunny cloudy rainy windy snowy foggy clear stormy dry humid".split()
SYLLABLES = "ba be bo da de do fa fi ga go ha hi ka ke ki ko la le li lo ma me mi mo na ne ni no pa pe po ra re ri ro sa se si so ta te ti to va ve vi vo za zo lan mar ton ber kel dor vin sta".split()
UNKNOWN = "I do not know that. I am a very small model and know only a few facts."
