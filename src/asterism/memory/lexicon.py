"""What the rules of likeness know of English: verbs, opposites, what has one value at a time."""

from __future__ import annotations

import re
from functools import cache

from asterism.memory.words import word_set

_REGULAR = """
accept adopt agree allow answer approve arrive ask attend avoid bake believe belong book borrow
call cancel care carry celebrate change charge check claim clean climb close collect complain
confirm connect consider consult contact contain contribute cook cost count cover create cross cry
cycle damage dance decide deliver deny depart depend deploy describe design develop direct discuss
dislike donate download drop earn employ enable end enjoy enrol enter expect expire explain export
fail fear fill finish fix fly follow gather handle happen hate help hike hire hold hope host hug
identify import improve include install intend introduce invest invite join keep knit lack land
last launch learn lift like listen live lock look love maintain manage marry matter measure meet
mention miss monitor move need notice obtain offer open operate order organise organize own pack
paint park pass pay perform phone pick plan plant play post practice practise prefer prepare
present prevent print produce promise propose protect provide publish pull push quit reach read
realise receive recommend record reduce refer refuse regret reject relax release remain remember
remind remove rent repair repeat replace reply report represent request require reserve respond
rest restart retire return rotate sail save schedule search seem send serve settle share ship sign
ski skip smoke solve sort sound start stay stop store struggle study succeed suffer suggest supply
support surf switch talk taste teach test thank touch track train transfer translate travel treat
trust try turn type update upgrade upload use value visit vote wait walk want warn wash watch
water wear weigh welcome wish work worry write
"""
_IRREGULAR = """
begin began begun|break broke broken|bring brought|build built|buy bought|choose chose chosen|
come came|cut|do did done|draw drew drawn|drink drank drunk|drive drove driven|eat ate eaten|
fall fell fallen|feel felt|find found|fly flew flown|forget forgot forgotten|get got gotten|
give gave given|go went gone goes|grow grew grown|hear heard|hold held|hurt|keep kept|
know knew known|
leave left|lend lent|lose lost|make made|mean meant|meet met|pay paid|put|read|ride rode ridden|
run ran|say said|see saw seen|sell sold|send sent|set|sing sang sung|sleep slept|speak spoke spoken|
spend spent|stand stood|swim swam swum|take took taken|teach taught|tell told|think thought|
wake woke woken|lead led|become became|catch caught|hide hid hidden|let|hang hung|
lie lay|light lit|rise rose risen|show shown|shut|sit sat|steal stole stolen|throw threw thrown|
understand understood|wear wore worn|win won|write wrote written|learn learnt
""".replace("\n", "")


def _forms() -> tuple[dict[str, str], set[str]]:
    """Return the verb that each form belongs to, and the forms that tell of what is over."""
    verbs: dict[str, str] = {}
    past: set[str] = set()

    def add(verb: str) -> None:
        stem = verb.removesuffix("e")
        for form in (verb, verb + "s", stem + "ing", verb[:-1] + "ies", verb + "es"):
            verbs.setdefault(form, verb)
        for form in (stem + "ed", verb[:-1] + "ied", verb + verb[-1] + "ed"):
            verbs.setdefault(form, verb)
            past.add(form)
        verbs.setdefault(verb + verb[-1] + "ing", verb)

    for verb in _REGULAR.split():
        add(verb)
    for line in _IRREGULAR.split("|"):
        verb, *others = line.split()
        add(verb)
        for form in others:
            verbs[form] = verb
            past.add(form)
    return verbs, past - {"goes"}


VERBS, PAST = _forms()
SAME_PAST = frozenset({"put", "cut", "read", "hurt", "set", "quit", "let", "shut", "cost"})
"""Verbs that look the same when all is over."""
AUXILIARIES = {
    **dict.fromkeys(("is", "are", "am", "be", "was", "were", "been", "being"), "be"),
    **dict.fromkeys(("has", "have", "had", "having"), "have"),
}
MODALS = {
    **dict.fromkeys(("can", "could", "cannot"), "can"),
    **dict.fromkeys(("may", "might", "perhaps", "maybe", "probably"), "may"),
    **dict.fromkeys(("should", "must", "shall"), "must"),
    **dict.fromkeys(("would",), "would"),
    "will": "",
}
CONDITIONS = frozenset({"if", "unless", "when", "whenever", "suppose"})

NEGATIONS = word_set(
    "not no never none nobody neither nor cannot without hardly"  # English
    " nicht kein keine keinen keiner nie niemals nichts ohne"  # German
    " pas jamais aucun aucune rien sans"  # French
    " nunca tampoco sin ningún ninguna"  # Spanish
    " non mai senza não nem sem"  # Italian, Portuguese
    " не нет никогда без"  # Russian
)

_PHRASES = (
    (r"[\u2018\u2019]", "'"),
    (r"\b(?:please )?(?:remember|note|keep in mind|don't forget) that ", ""),
    (r"\bcan't stand\b|\bcannot stand\b|\bdetests?\b|\bloathes?\b", "hates"),
    (r"\bcan't\b", "can not"),
    (r"\bcannot\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"\b(is|are|was|were|has|have|had|do|does|did|can|will|would)nt\b", r"\1 not"),
    (r"\b(I)'m\b", r"\1 am"),
    (r"\b(you|we|they)'re\b", r"\1 are"),
    (r"\b(I|you|we|they)'ve\b", r"\1 have"),
    (r"\b(I|you|we|he|she|it|they)'ll\b", r"\1 will"),
    (r"\b(he|she|it)'s\b", r"\1 is"),
    (r"\b(?:would|'d) (?:like|love) to\b", "wants to"),
    (r"\bno longer\b|\bnot (.{0,60}?)\s*\b(?:any ?more|any longer)\b", r"ended \1 "),
    (r"\bused to (?=\w)", "ended "),
    (r"\b(?:stopped|quit|gave up|has stopped|has quit|has given up) (?=\w+ing\b)", "ended "),
    (r"\bthere (?:is|are) (.+?) (?:in|at|on) ((?:the|our|my|his|her|their) \w+)", r"\2 has \1"),
    (
        (
            r"\b(?:was|were|is|has been|have been|got) (?:moved|postponed|rescheduled|shifted"
            r"|brought forward|put off) (?:to|for|until)\b"
        ),
        "is on",
    ),
    (r"\b(?:has |have )?(?:moved|relocated) (?:over )?to\b", "lives in"),
    (r"\b(?:resides?|is based|is at home|is living|are living|am living) in\b", "lives in"),
    (r"\b(?:is|are|am) (?:employed (?:by|at)|working (?:for|at))\b", "works for"),
    (r"\b(works?) (?:at|with) (?=[A-Z])", r"\1 for "),
    (r"\b(?:dislikes?|is not fond of)\b", "hates"),
    (r"\b(?:adores?|loves?|enjoys?|is fond of|is keen on)\b", "likes"),
    (r"\b(?:possesses|owns?|has got|have got)\b", "has"),
    (r"\b(?:has|have) an? (\w+) allergy\b|\b(?:has|have) an allergy to\b", r"is allergic to \1"),
    (r"\bfavorite\b", "favourite"),
    (r"\bcolor\b", "colour"),
    (r"\bwi-fi\b|\bwlan\b", "wifi"),
    (r"\be-mail(?: address)?\b|\bemail address\b", "email"),
    (r"\b(?:tele)?phone number\b|\bcell(?:phone)?\b|\bmobile(?: number)?\b", "phone"),
    (r"\bkids?\b", "children"),
    (r"\bchild\b", "children"),
    (r"\bgrandma\b|\bgranny\b", "grandmother"),
    (r"\bgrandpa\b", "grandfather"),
    (r"\bmu[mi]m?\b", "mother"),
    (r"\bdad\b", "father"),
    (r"\bdoes not work\b|\bis out of order\b|\bis defective\b", "is broken"),
    (r"\b(?:each|every) (?=(?:mon|tues|wednes|thurs|fri|satur|sun)day)", "on "),
    (r"\beach (?=\w)", "every "),
    (r"\b(?:every|per|a) (month|week|year)\b", r"\1ly"),
    (r"\b(?:every|per|a) day\b", "daily"),
    (r"\bborn on\b", "born"),
    (r"\bcalled\b", "named"),
    (r"\ba (vegetarian|vegan|pescatarian)\b", r"\1"),
    (r"\bend(?:s|ed) up\b", "ended"),
)
"""Ways to say a thing, and the one way in which it is compared."""


@cache
def phrases() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the patterns of ways to say a thing, with the one way that takes their place."""
    return tuple((re.compile(pattern, re.IGNORECASE), said) for pattern, said in _PHRASES)


FILLERS = word_set(
    "now currently just still already really actually again today presently truly simply only"
    " please also too very quite a an the some any lot always so then well ok okay yes finally"
    " currently recently"
)
PRONOUNS = frozenset({"he", "she", "it", "they", "who", "which"})
PLACES = word_set("in on at under behind beside near inside above below by next outside from")
"""Words before a place."""
NO_PLACES = word_set(
    "charge love trouble need doubt favour favor time touch danger progress control use stock order"
    " holiday vacation leave fire risk hunt lookout way edge mood pain shock debt contact general"
    " fact good bad short long best worst top board duty call demand sale loan strike tour"
)
"""What follows `in` or `on` and is a state rather than a place."""
LINKS = PLACES | word_set("to for with as of about over than until till since into")

FLIPS = {
    "closed": "open", "shut": "open", "dead": "alive", "unpaid": "paid", "disabled": "enabled",
    "false": "true", "empty": "full", "forbidden": "allowed", "prohibited": "allowed",
    "banned": "allowed", "cold": "hot", "late": "early", "cheap": "expensive", "small": "big",
    "large": "big", "short": "long", "brief": "long", "slow": "fast", "ill": "healthy",
    "sick": "healthy", "asleep": "awake", "offline": "online", "private": "public",
    "impossible": "possible", "unsafe": "safe", "dangerous": "safe", "unavailable": "available",
    "invalid": "valid", "inactive": "active", "bad": "good", "wrong": "right",
    "incorrect": "correct", "cancelled": "confirmed", "canceled": "confirmed",
    "unemployed": "employed", "unlocked": "locked", "unfinished": "finished", "poor": "rich",
    "weak": "strong", "wet": "dry", "dirty": "clean", "unhappy": "happy", "sad": "happy",
    "difficult": "easy", "hard": "easy", "optional": "required", "incomplete": "complete",
    "illegal": "legal", "unmarried": "married", "rejected": "approved", "declined": "approved",
}  # fmt: skip
"""Words that deny another one."""
FLIPPED_VERBS = {
    "hate": "like", "fail": "pass", "reject": "accept", "refuse": "accept", "deny": "confirm",
    "cancel": "confirm", "disable": "enable",
}  # fmt: skip
ENDS = {
    "leave": ("live", "work", "belong"), "quit": ("work", "play"), "sell": ("have",),
    "lose": ("have",), "retire": ("work",),
}  # fmt: skip
"""A verb after which another one no longer holds of the same thing."""

GROUPS = {
    word: group
    for group, members in {
        "marital": "married single divorced widowed engaged",
        "diet": "vegetarian vegan omnivore pescatarian",
        "hand": "lefthanded righthanded ambidextrous",
        "colour": "red blue green yellow black white grey gray brown orange purple pink silver gold"
        " beige turquoise",
        "work": "retired unemployed",
        "sex": "male female",
    }.items()
    for word in members.split()
}
"""Words of which one at most holds of a thing."""

SINGLE = word_set(
    "name birthday age phone email address deadline code price cost rent budget colour"
    " favourite boss manager supervisor coach captain mayor wife husband spouse mother father"
    " capital ceo president director landlord"
    " size height weight salary port version status url website nickname surname title"
    " anniversary owner author leader chairman chair partner password timezone nationality"
    " employer job profession username branch default host domain number zip postcode"
    " extension platform"
)
"""What a thing has one of at a time."""
WORDED = word_set(
    "name nickname surname title colour favourite status job profession size nationality branch"
    " default host domain username timezone version code address website"
)
"""Those of them whose value may be a plain word; "the boss is away" says not who the boss is."""
MANY = word_set(
    "friend colleague brother sister son daughter children cousin uncle aunt neighbour hobby"
    " goal pet dog cat language skill neighbor idea wish task rule member guest student client"
    " customer example reason option plan question"
)
"""What a thing may have several of."""
ONE_PLACE = {
    "live": ("in", "at"), "work": ("for", "as", "in"), "bear": ("in", "at"),
    "marry": ("to",), "study": ("at",), "stay": ("in", "at"), "depart": ("from",),
    "leave": ("from",), "run": ("on",), "start": ("in", "at"), "end": ("in", "at"),
}  # fmt: skip
"""Verbs that hold of one name at a time after one of these words."""
EVERYWHERE = word_set("used known found sold spoken made seen involved interested needed played")
"""What is done in several places at a time."""
PASSIVES = word_set("held owned run led managed chaired taught hosted headed supervised")
TIMES = frozenset({"time", "date", "weekday", "month", "year"})
HABITS = word_set(
    "go play run swim teach work see meet read visit call train eat drink have cook practise"
)
"""What is done on several days, so that another day does not exclude the first."""

MEASURED = word_set(
    "be have cost weigh measure take last earn need contain start begin end finish open close"
    " leave depart arrive run expire drink eat sleep use hold own belong rent stay cover"
    " charge require live bear land return amount last serve want turn become receive pay"
)
"""Verbs whose number is a lasting one: another number is another state of things."""

WIDE = word_set(
    "europe asia africa america australia germany france italy spain portugal austria"
    " switzerland poland denmark sweden norway finland iceland ireland britain england"
    " scotland wales uk netherlands belgium luxembourg greece turkey russia ukraine romania"
    " hungary czechia slovakia slovenia croatia serbia bulgaria usa us states canada mexico"
    " brazil argentina chile peru colombia china japan korea india pakistan indonesia vietnam"
    " thailand israel egypt morocco kenya nigeria ghana ethiopia bavaria california texas"
    " florida tuscany catalonia"
)
"""Countries and the like, which hold a town rather than exclude it."""

NUMBERS = {
    word: str(value)
    for value, words in enumerate(
        (
            "zero", "one first", "two second", "three third", "four fourth", "five fifth",
            "six sixth", "seven seventh", "eight eighth", "nine ninth", "ten tenth",
            "eleven eleventh", "twelve twelfth",
        )
    )
    for word in words.split()
    if word != "zero"
}  # fmt: skip
