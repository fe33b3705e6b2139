"""The facts the built-in model is taught.  Doubtful or disputed ones are left out."""


def table(text):
    """'key: value; key: value' -> dict"""
    return {k.strip(): v.strip() for k, v in (e.split(":") for e in text.replace("\n", " ").split(";") if e.strip())}


CAPITALS = {
    "Europe": table("""France: Paris; Germany: Berlin; Italy: Rome; Spain: Madrid; Portugal: Lisbon; Austria: Vienna;
    Belgium: Brussels; Netherlands: Amsterdam; Poland: Warsaw; Greece: Athens; Sweden: Stockholm; Norway: Oslo;
    Denmark: Copenhagen; Finland: Helsinki; Iceland: Reykjavik; Ireland: Dublin; United Kingdom: London; Hungary: Budapest;
    Romania: Bucharest; Bulgaria: Sofia; Croatia: Zagreb; Slovenia: Ljubljana; Slovakia: Bratislava; Serbia: Belgrade;
    Albania: Tirana; Montenegro: Podgorica; North Macedonia: Skopje; Bosnia and Herzegovina: Sarajevo; Ukraine: Kyiv;
    Belarus: Minsk; Moldova: Chisinau; Lithuania: Vilnius; Latvia: Riga; Estonia: Tallinn; Luxembourg: Luxembourg City;
    Malta: Valletta; Switzerland: Bern; Czech Republic: Prague; Liechtenstein: Vaduz; Andorra: Andorra la Vella;
    San Marino: San Marino City; Russia: Moscow"""),
    "Asia": table("""China: Beijing; Japan: Tokyo; India: New Delhi; South Korea: Seoul; North Korea: Pyongyang;
    Thailand: Bangkok; Vietnam: Hanoi; Laos: Vientiane; Cambodia: Phnom Penh; Myanmar: Naypyidaw; Malaysia: Kuala Lumpur;
    Philippines: Manila; Mongolia: Ulaanbaatar; Nepal: Kathmandu; Bhutan: Thimphu; Bangladesh: Dhaka;
    Pakistan: Islamabad; Afghanistan: Kabul; Iran: Tehran; Iraq: Baghdad; Syria: Damascus; Lebanon: Beirut; Jordan: Amman;
    Saudi Arabia: Riyadh; Yemen: Sanaa; Oman: Muscat; Qatar: Doha; Bahrain: Manama; Kuwait: Kuwait City;
    United Arab Emirates: Abu Dhabi; Uzbekistan: Tashkent; Turkmenistan: Ashgabat; Kyrgyzstan: Bishkek;
    Tajikistan: Dushanbe; Kazakhstan: Astana; Maldives: Male; Brunei: Bandar Seri Begawan; East Timor: Dili;
    Turkey: Ankara; Armenia: Yerevan; Georgia: Tbilisi; Azerbaijan: Baku"""),
    "Africa": table("""Egypt: Cairo; Morocco: Rabat; Algeria: Algiers; Tunisia: Tunis; Libya: Tripoli; Sudan: Khartoum;
    South Sudan: Juba; Ethiopia: Addis Ababa; Kenya: Nairobi; Uganda: Kampala; Tanzania: Dodoma; Rwanda: Kigali;
    Burundi: Gitega; Somalia: Mogadishu; Eritrea: Asmara; Nigeria: Abuja; Ghana: Accra; Senegal: Dakar; Mali: Bamako;
    Niger: Niamey; Chad: N'Djamena; Cameroon: Yaounde; Gabon: Libreville; Angola: Luanda; Zambia: Lusaka; Zimbabwe: Harare;
    Mozambique: Maputo; Madagascar: Antananarivo; Namibia: Windhoek; Botswana: Gaborone; Lesotho: Maseru; Malawi: Lilongwe;
    Mauritius: Port Louis; Seychelles: Victoria; Gambia: Banjul; Guinea: Conakry; Guinea-Bissau: Bissau; Liberia: Monrovia;
    Sierra Leone: Freetown; Togo: Lome; Mauritania: Nouakchott; Burkina Faso: Ouagadougou; Ivory Coast: Yamoussoukro;
    Cape Verde: Praia; Comoros: Moroni; Central African Republic: Bangui"""),
    "North America": table("""Canada: Ottawa; Mexico: Mexico City; United States: Washington; Cuba: Havana;
    Jamaica: Kingston; Haiti: Port-au-Prince; Guatemala: Guatemala City; Honduras: Tegucigalpa; El Salvador: San Salvador;
    Nicaragua: Managua; Costa Rica: San Jose; Panama: Panama City; Belize: Belmopan; Bahamas: Nassau; Barbados: Bridgetown;
    Dominican Republic: Santo Domingo; Grenada: Saint George's; Saint Lucia: Castries"""),
    "South America": table("""Brazil: Brasilia; Argentina: Buenos Aires; Chile: Santiago; Peru: Lima; Colombia: Bogota;
    Venezuela: Caracas; Ecuador: Quito; Uruguay: Montevideo; Paraguay: Asuncion; Guyana: Georgetown; Suriname: Paramaribo"""),
    "Oceania": table("""Australia: Canberra; New Zealand: Wellington; Fiji: Suva; Samoa: Apia; Tonga: Nuku'alofa;
    Vanuatu: Port Vila; Solomon Islands: Honiara; Papua New Guinea: Port Moresby; Tuvalu: Funafuti; Palau: Ngerulmud"""),
}
ARTICLE = {"Netherlands", "United Kingdom", "Czech Republic", "Philippines", "United Arab Emirates", "Maldives", "Seychelles",
           "Gambia", "Comoros", "Central African Republic", "United States", "Bahamas", "Dominican Republic", "Solomon Islands"}
TWO_CONTINENTS = {"Russia", "Turkey", "Egypt", "Kazakhstan", "Georgia", "Azerbaijan", "Armenia"}   # not asked for one

LANGUAGE = table("""France: French; Germany: German; Italy: Italian; Spain: Spanish; Portugal: Portuguese; Poland: Polish;
Greece: Greek; Sweden: Swedish; Denmark: Danish; Hungary: Hungarian; Romania: Romanian; Bulgaria: Bulgarian; Japan: Japanese;
China: Chinese; South Korea: Korean; Thailand: Thai; Vietnam: Vietnamese; Turkey: Turkish; Brazil: Portuguese;
Mexico: Spanish; Argentina: Spanish; Chile: Spanish; Cuba: Spanish; Iceland: Icelandic; Russia: Russian; Egypt: Arabic;
Saudi Arabia: Arabic; Iran: Persian; Australia: English; Jamaica: English; Mongolia: Mongolian; Albania: Albanian;
Austria: German; Netherlands: Dutch; Croatia: Croatian; Lithuania: Lithuanian; Latvia: Latvian; Estonia: Estonian""")

COLOUR = table("""the sky on a clear day: blue; grass: green; fresh snow: white; blood: red; a ripe banana: yellow; coal: black;
a lemon: yellow; milk: white; a ripe tomato: red; a carrot: orange; chocolate: brown; a ripe strawberry: red; an emerald: green;
a ruby: red; a sapphire: blue; the sun in a child's drawing: yellow; a polar bear: white; a flamingo: pink; a crow: black;
a frog: green; salt: white; a pumpkin: orange; spinach: green; an elephant: grey; the night sky: black; a cherry: red;
a swan: white; a lime: green; a raven: black; broccoli: green; an egg yolk: yellow; rice: white; tree bark: brown;
a fire engine: red; cucumber: green; a blueberry: blue; lavender: purple; cotton: white; a mouse: grey; sugar: white""")
MIX = {("red", "yellow"): "orange", ("blue", "yellow"): "green", ("red", "blue"): "purple", ("black", "white"): "grey",
       ("red", "white"): "pink"}

SOUND = table("""dog: barks; cat: meows; cow: moos; sheep: bleats; horse: neighs; pig: oinks; duck: quacks; lion: roars;
wolf: howls; frog: croaks; bee: buzzes; snake: hisses; owl: hoots; donkey: brays; chicken: clucks; rooster: crows;
crow: caws; mouse: squeaks; elephant: trumpets; turkey: gobbles; goose: honks; dove: coos""")
BABY = table("""dog: puppy; cat: kitten; cow: calf; sheep: lamb; horse: foal; pig: piglet; duck: duckling; lion: cub;
chicken: chick; goat: kid; deer: fawn; frog: tadpole; bear: cub; goose: gosling; kangaroo: joey; swan: cygnet; owl: owlet;
butterfly: caterpillar; eel: elver; hare: leveret; elephant: calf; seal: pup; wolf: pup; eagle: eaglet""")
LEGS = table("""dog: four; cat: four; cow: four; horse: four; pig: four; sheep: four; lion: four; elephant: four; mouse: four;
frog: four; bird: two; chicken: two; duck: two; human: two; penguin: two; ostrich: two; spider: eight; scorpion: eight;
ant: six; bee: six; fly: six; beetle: six; butterfly: six; mosquito: six; snake: zero; fish: zero; worm: zero; snail: zero;
crab: ten; lobster: ten; goat: four; camel: four; rabbit: four; tiger: four; bear: four; deer: four; grasshopper: six""")
GROUP = table("""dog: mammal; cat: mammal; whale: mammal; dolphin: mammal; bat: mammal; horse: mammal; eagle: bird; penguin: bird;
owl: bird; sparrow: bird; ostrich: bird; shark: fish; salmon: fish; trout: fish; tuna: fish; snake: reptile; lizard: reptile;
crocodile: reptile; turtle: reptile; frog: amphibian; toad: amphibian; salamander: amphibian; ant: insect; bee: insect;
butterfly: insect; beetle: insect; mosquito: insect; spider: arachnid; scorpion: arachnid; crab: crustacean;
lobster: crustacean; parrot: bird; elephant: mammal; mouse: mammal; newt: amphibian; cod: fish; fly: insect""")

OPPOSITE = table("""hot: cold; big: small; tall: short; fast: slow; up: down; left: right; good: bad; happy: sad; old: young;
rich: poor; day: night; light: dark; open: closed; full: empty; early: late; wet: dry; clean: dirty; strong: weak; easy: difficult;
hard: soft; high: low; loud: quiet; inside: outside; above: below; near: far; thick: thin; wide: narrow; deep: shallow;
heavy: lightweight; beautiful: ugly; brave: cowardly; true: false; always: never; first: last; front: back; push: pull;
win: lose; buy: sell; love: hate; begin: end; arrive: depart; black: white; sharp: blunt; smooth: rough; sweet: sour;
safe: dangerous; asleep: awake; alive: dead; cheap: expensive; noisy: silent; question: answer; summer: winter; north: south;
east: west; friend: enemy; war: peace; success: failure; increase: decrease; accept: reject; remember: forget; laugh: cry;
polite: rude; ancient: modern; male: female; enter: exit; give: take; teach: learn; tight: loose; straight: crooked;
generous: selfish; top: bottom; maximum: minimum; before: after; yes: no; floor: ceiling; hero: villain; victory: defeat""")
PLURAL = table("""mouse: mice; child: children; man: men; woman: women; foot: feet; tooth: teeth; goose: geese; ox: oxen;
person: people; leaf: leaves; knife: knives; wolf: wolves; life: lives; wife: wives; shelf: shelves; sheep: sheep; fish: fish;
city: cities; baby: babies; box: boxes; dog: dogs; cat: cats; house: houses; tree: trees; book: books; car: cars; bus: buses;
potato: potatoes; tomato: tomatoes; hero: heroes; half: halves; thief: thieves; loaf: loaves; lady: ladies; story: stories;
church: churches; watch: watches; glass: glasses; apple: apples; bird: birds; crisis: crises; louse: lice; fox: foxes""")
PAST = table("""go: went; see: saw; eat: ate; drink: drank; run: ran; swim: swam; sing: sang; write: wrote; take: took;
give: gave; come: came; make: made; buy: bought; bring: brought; think: thought; teach: taught; catch: caught; find: found;
know: knew; grow: grew; fly: flew; draw: drew; speak: spoke; break: broke; choose: chose; drive: drove; ride: rode; rise: rose;
win: won; lose: lost; sleep: slept; keep: kept; feel: felt; leave: left; meet: met; sit: sat; stand: stood; tell: told;
sell: sold; begin: began; forget: forgot; hear: heard; build: built; send: sent; walk: walked; play: played; jump: jumped""")

ELEMENTS = """hydrogen H 1;helium He 2;lithium Li 3;beryllium Be 4;boron B 5;carbon C 6;nitrogen N 7;oxygen O 8;fluorine F 9;
neon Ne 10;sodium Na 11;magnesium Mg 12;aluminium Al 13;silicon Si 14;phosphorus P 15;sulfur S 16;chlorine Cl 17;argon Ar 18;
potassium K 19;calcium Ca 20;titanium Ti 22;chromium Cr 24;manganese Mn 25;iron Fe 26;cobalt Co 27;nickel Ni 28;copper Cu 29;
zinc Zn 30;arsenic As 33;bromine Br 35;krypton Kr 36;silver Ag 47;tin Sn 50;iodine I 53;xenon Xe 54;barium Ba 56;
tungsten W 74;platinum Pt 78;gold Au 79;mercury Hg 80;lead Pb 82;radium Ra 88;uranium U 92"""
ELEMENTS = [(n, s, int(z)) for n, s, z in (e.split() for e in ELEMENTS.replace("\n", "").split(";"))]

PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
MONTH_DAYS = [31, None, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
UNITS = [("minutes", "an hour", "60"), ("seconds", "a minute", "60"), ("hours", "a day", "24"), ("days", "a week", "7"),
         ("months", "a year", "12"), ("years", "a decade", "10"), ("years", "a century", "100"),
         ("years", "a millennium", "1000"), ("centimetres", "a metre", "100"), ("millimetres", "a centimetre", "10"),
         ("metres", "a kilometre", "1000"), ("grams", "a kilogram", "1000"), ("items", "a dozen", "12"),
         ("seasons", "a year", "4"), ("milligrams", "a gram", "1000"), ("millilitres", "a litre", "1000"),
         ("kilograms", "a tonne", "1000"), ("bits", "a byte", "8"), ("letters", "the English alphabet", "26"),
         ("days", "a leap year", "366"), ("days", "a normal year", "365"), ("cents", "a dollar", "100"),
         ("players", "a football team on the pitch", "11"), ("strings", "a violin", "4"), ("fingers", "one human hand", "5"),
         ("colours", "the rainbow", "7"), ("planets", "the solar system", "8"), ("continents", "the world", "7")]
SHAPES = table("""triangle: three; square: four; rectangle: four; pentagon: five; hexagon: six; heptagon: seven; octagon: eight;
nonagon: nine; decagon: ten; trapezoid: four""")

SINGLE = [   # (subject as it is asked for, answer sentence, key words)
    ("the largest planet in the solar system", "Jupiter is the largest planet in the solar system.", "Jupiter"),
    ("the smallest planet in the solar system", "Mercury is the smallest planet in the solar system.", "Mercury"),
    ("the planet closest to the sun", "Mercury is the planet closest to the sun.", "Mercury"),
    ("the planet farthest from the sun", "Neptune is the planet farthest from the sun.", "Neptune"),
    ("the red planet", "Mars is the red planet.", "Mars"),
    ("the planet with the famous rings", "Saturn is the planet with the famous rings.", "Saturn"),
    ("the hottest planet in the solar system", "Venus is the hottest planet in the solar system.", "Venus"),
    ("the largest ocean on earth", "The Pacific is the largest ocean on Earth.", "Pacific"),
    ("the highest mountain on earth", "Mount Everest is the highest mountain on Earth.", "Everest"),
    ("the largest country in the world", "Russia is the largest country in the world.", "Russia"),
    ("the smallest country in the world", "Vatican City is the smallest country in the world.", "Vatican"),
    ("the largest animal on earth", "The blue whale is the largest animal on Earth.", "blue whale"),
    ("the fastest land animal", "The cheetah is the fastest land animal.", "cheetah"),
    ("the tallest animal", "The giraffe is the tallest animal.", "giraffe"),
    ("the largest continent", "Asia is the largest continent.", "Asia"),
    ("the smallest continent", "Australia is the smallest continent.", "Australia"),
    ("the coldest continent", "Antarctica is the coldest continent.", "Antarctica"),
    ("the largest bird", "The ostrich is the largest bird.", "ostrich"),
    ("the star nearest to the earth", "The Sun is the star nearest to the Earth.", "Sun"),
    ("the shortest month of the year", "February is the shortest month of the year.", "February"),
    ("the chemical formula of water", "The chemical formula of water is H2O.", "H2O"),
    ("the author of romeo and juliet", "William Shakespeare wrote Romeo and Juliet.", "Shakespeare"),
    ("the author of hamlet", "William Shakespeare wrote Hamlet.", "Shakespeare"),
    ("the author of don quixote", "Miguel de Cervantes wrote Don Quixote.", "Cervantes"),
    ("the author of war and peace", "Leo Tolstoy wrote War and Peace.", "Tolstoy"),
    ("the painter of the mona lisa", "Leonardo da Vinci painted the Mona Lisa.", "Leonardo"),
    ("the largest organ of the human body", "The skin is the largest organ of the human body.", "skin"),
    ("the king of the jungle", "The lion is called the king of the jungle.", "lion"),
    ("the temperature at which water boils", "Water boils at 100 degrees Celsius at sea level.", "100"),
    ("the temperature at which water freezes", "Water freezes at 0 degrees Celsius.", "0 degrees"),
    ("the natural satellite of the earth", "The Moon is the natural satellite of the Earth.", "Moon"),
    ("the gas that plants take from the air", "Plants take carbon dioxide from the air.", "carbon dioxide"),
    ("the hardest natural material", "Diamond is the hardest natural material.", "Diamond"),
]

NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen twenty").split()
TENS = dict(zip((20, 30, 40, 50, 60, 70, 80, 90), "twenty thirty forty fifty sixty seventy eighty ninety".split()))


def words(n):
    """0..100 in words."""
    if n <= 20:
        return NUMBERS[n]
    return "one hundred" if n == 100 else TENS[n // 10 * 10] + ("-" + NUMBERS[n % 10] if n % 10 else "")
