"""What must not be lost when messages leave the context, found by rule, sentence by sentence.

The rules were tuned on tests/data/facts_tuned.txt and are measured on facts_held_out.txt by
`python -m bench.likeness`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import cache

from asterism.memory.keep import MAX_SENTENCE, looks_secret, sentences
from asterism.memory.words import word_set
from asterism.records import dataclass


class FactKind(StrEnum):
    """What a fact is about."""

    NAME = "name"
    BIRTHDAY = "birthday"
    ADDRESS = "address"
    PREFERENCE = "preference"
    APPOINTMENT = "appointment"
    PROMISE = "promise"
    DECISION = "decision"
    NUMBER = "number"
    CONTACT = "contact"
    INSTRUCTION = "instruction"
    RELATION = "relation"
    POSSESSION = "possession"
    HEALTH = "health"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence worth keeping, word by word."""

    text: str
    kind: FactKind
    weight: float
    """How much would be lost without it, from 0 to 1."""
    on: str = ""
    """The day (UTC, ISO 8601) that "tomorrow" or "on Friday" meant when it was said."""


_MAX_FACTS = 50

_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_KIN_WORDS = (
    "wife husband partner girlfriend boyfriend fiance fiancee fiancé fiancée mother father mum mom"
    " dad"
    " parent parents sister sisters brother brothers sibling siblings son sons daughter daughters"
    " kid"
    " kids child children baby babies twins grandma grandpa grandmother grandfather grandparents"
    " grandson granddaughter aunt aunts uncle uncles cousin cousins niece nephew boss manager"
    " colleague"
    " colleagues coworker coworkers friend friends flatmate roommate neighbour neighbours neighbor"
    " neighbors landlord dog dogs cat cats pet pets doctor dentist therapist teacher lawyer laws"
    " married engaged divorced dating single"
)
_KIN = "(?:" + _KIN_WORDS.split(" laws", maxsplit=1)[0].replace(" ", "|") + "|in-laws)"
_WHEN = (
    rf"\b{_DAY}\b|\b\d{{1,2}}(?:st|nd|rd|th)?\.? (?:of )?{_MONTH}\b|\b{_MONTH} \d{{1,2}}(?:st|nd"
    rf"|rd|th)?\b"
    r"|\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b|\b\d{1,2}:\d\d\b|\b\d{1,2} ?[ap]m\b"
    r"|\b(?:tomorrow|tonight|yesterday)\b|\b(?:next|this|last) (?:week|summer|winter|spring|autumn"
    r"|month|year|weekend|morning|evening)\b"
    rf"|\b(?:in|by|until|since|next|last) {_MONTH}\b"
)
_PHONE = r"(?<![\w.])(?:\+|0)\d(?:[\s()/-]?\d){6,14}\b"
_MAIL = r"[\w.+-]+@[\w-]+\.[\w.-]+"
_LINK = r"https?://\S+|\bwww\.\S+"

_CHATTER = (
    r"^(?:(?:oh|well|ok(?:ay)?|yes|no|yeah|and|but|so)[, ]+)*(?:"
    r"i (?:really )?(?:like|love|hate|enjoy) (?:it|that|this|them|these|those|your?|the (?:idea"
    r"|first|second|last|new))\b"
    r"|i(?:'m| am) (?:fine|good|ok(?:ay)?|well|sorry|sure|not sure|back|here|ready|done|glad"
    r"|happy to"
    r"|just|afraid|confused|curious|kidding|looking at|thinking|wondering|asking|talking|trying"
    r"|going (?!to\b)"
    r"|an? (?:ai|assistant|language model|bit|little)|interested in (?:that|this)|so )\b"
    r"|i (?:have|had|'ve got|ve got) (?:a|an|another|some|no|one more) (?:\w+ )?(?:questions?"
    r"|ideas?|problems?"
    r"|thoughts?|doubts?|feeling|clue|suggestions?|look|issue)\b"
    r"|we (?:have|had) (?:a|an) (?:problem|issue|question)\b"
    r"|i need (?:help|more|you|to know|it|that|this)\b|i want (?:to know|you|it|that|this|more)\b"
    r"|i was (?:wondering|just|asking)\b|i (?:think|guess|see|know|mean|agree|suppose|hope"
    r"|believe)\b"
    r"|i (?:don't|do not|didn't) (?:know|think|understand|see|mean|get|care|want (?:it|that"
    r"|this))\b"
    r"|let(?:'s| us) (?:see|say|think|look|talk|discuss|hope|continue|go on|move on|start"
    r"|face it)\b"
    r"|my (?:bad|question|point|mistake|apologies|guess|pleasure)\b|never ?mind\b"
    r"|don't (?:worry|bother|mention|know|get me wrong)\b|i(?:'ll| will)(?: (?:explain|try|think"
    r"|see|be|do(?: that| it| so)?"
    r"|show you|tell you|check|help|go on|start|keep|let you know|list|give|walk you|now"
    r"|have a look|take a look"
    r"|summari[sz]e|use|assume|be (?:happy|glad))\b|[.!]?$)"
    r"|i(?:'d| would) (?:love|like|be (?:happy|glad)) to (?:know|hear|help)\b"
    r")"
)

_I = (
    r"\b(?:i|we)(?:'m| am|'re| are|'ve| have)?"
    r"(?: (?:really|also|still|just|always|actually|currently|now|usually|both))?"
)
_KEEP = "remember forget note mind important importantly record"
_ORDER = "always never don't do from future whenever sure stop avoid"
_PLACE = "live lived living reside moved relocated stay grew based address from office house flat"
_CHOICE = "let's let decided agreed chose chosen settled picked plan we'll will decision decided"
_TASTE = (
    "like love hate dislike prefer enjoy adore stand eat drink fond into favourite favorite"
    " favourites favorites vegetarian vegan pescatarian rather fan teetotal"
)
_HEALTH = (
    "allergy allergic allergies diabetes diabetic asthma asthmatic pregnant pregnancy diagnosed"
    " diagnosis"
    " medication medications prescribed prescription surgery insulin migraine migraines cancer"
    " depression"
    " depressed anxiety adhd epilepsy epileptic celiac coeliac intolerant intolerance vaccinated"
    " vaccine"
    " disabled disability wheelchair therapy hospital"
)
_INJURY = "mg hurts hurt broke sprained tore injured blood"
# What is about, what it weighs, the words of which one has to occur (none: always tried; `0` is any
# digit, `@` a contact, `+` a time), and the pattern in lower case.
_RULES: tuple[tuple[FactKind, float, str, str], ...] = (
    (
        FactKind.INSTRUCTION,
        1.0,
        _KEEP,
        (
            r"\bremember (?:that|to|this|the|my|i|we|it)\b|\b(?:don't|do not) (?:ever )?forget\b"
            r"|\bnote that\b|\b(?:keep|bear) in mind\b|\bimportant(?:ly)?[:,!]|\bfor the record\b"
            r"|\bmake a note\b"
        ),
    ),
    (
        FactKind.INSTRUCTION,
        0.95,
        _ORDER,
        (
            r"^(?:and |but |so |also |please[, ]+|then )*(?:(?:always|never|don't"
            r"|do not) [a-z]+\b(?! (?:a|an|the)\b"
            r" \w+[.!]$)|from now on|in (?:the )?future,|whenever\b|make sure|stop \w+ing|avoid )"
            r"|\bfrom now on\b|\bplease (?:always|never)\b"
        ),
    ),
    (
        FactKind.NAME,
        1.0,
        "name nickname surname calls call",
        (
            r"\bmy (?:\w+ )?(?:name|nickname|surname)(?: is|'s)\b|\bcalls? me (?!when|at|if"
            r"|on|later"
            r"|back|before)\w"
        ),
    ),
    (
        FactKind.BIRTHDAY,
        0.95,
        "birthday birthdays born turn turns turned turning 0",
        (
            r"\bbirthdays?\b.*(?:\d|\bis\b)|\b(?:was|were) born (?:on|in)\b|\b\d+ years old\b"
            r"|\bturn(?:s|ed|ing)? (?:\w+|\d+) (?:on|in|next|this)\b|\bi(?:'m| am) \d{1,2}\b(?!:)"
        ),
    ),
    (
        FactKind.HEALTH,
        0.95,
        f"{_HEALTH} {_INJURY} 0",
        (
            rf"\b(?:{_HEALTH.replace(' ', '|')})\b|\b\d+ ?mg\b|\bblood pressure\b"
            r"|\b(?:my|his|her|our) \w+ hurts?\b|\b(?:broke|sprained|tore|injured) (?:my|his|her)\b"
        ),
    ),
    (FactKind.CONTACT, 0.95, "@", rf"{_MAIL}|{_PHONE}|{_LINK}"),
    (
        FactKind.ADDRESS,
        0.95,
        _PLACE + " apartment home shop school",
        (
            rf"{_I} (?:live|lived|living|reside|moved|relocated|stay|grew up|based)\b(?! (?:for"
            rf"|my life|up))"
            r"|\b(?:my|our|\w+'s) (?:\w+ )?address\b|\bi(?:'m| am) (?:originally )?from \w"
            r"|\b(?:office|house|flat|apartment|home|shop|school) is (?:at|in|on|near)\b"
        ),
    ),
    (
        FactKind.DECISION,
        0.9,
        _CHOICE,
        (
            r"\blet(?:'s| us) \w+|\b(?:the|our|my) plan is\b|\bit(?:'s| is) (?:decided|settled"
            r"|agreed)\b"
            r"|\b(?:we|i)(?:'ve| have)? (?:decided|agreed|chose|chosen|settled|picked|made up)\b"
            r"|\bwe(?:'ll| will) (?:take|go with|use|do|have|keep|stay|meet)\b"
            r"|\bi(?:'ll| will) go (?:with|for)\b|\b(?:our|the|my) decision\b"
        ),
    ),
    (
        FactKind.PREFERENCE,
        0.85,
        _TASTE,
        (
            rf"{_I} (?:don't |do not |never |can't |cannot )?"
            r"(?:like|love|hate|dislike|prefer|enjoy|adore|stand|eat|drink|fond|into)\b"
            rf"|\bfavou?rites?\b|{_I} (?:an? |not an? |not )?(?:vegetarian|vegan|pescatarian"
            rf"|teetotal)"
            r"|\bi(?:'d| would) (?:rather|prefer)\b|\bi(?:'m| am) (?:not )?(?:a (?:big )?fan of"
            r"|fond of|into)\b"
        ),
    ),
    (
        FactKind.PROMISE,
        0.9,
        "i'll will promise i'm going shall promised",
        r"\bi(?:'ll| will| promise|'m going to| am going to| shall|'ve promised| have promised)\b",
    ),
    (FactKind.APPOINTMENT, 0.9, "+time", _WHEN),
    (
        FactKind.RELATION,
        0.85,
        _KIN_WORDS,
        (
            rf"\b(?:my|our) (?:\w+ ){{0,2}}{_KIN}\b|\bis (?:my|our) (?:\w+ )?{_KIN}\b"
            rf"|{_I} (?:have |got |had )*(?:an? |one |two |three |four |five |\d+ "
            rf"|no )(?:\w+ )?(?!teacher|doctor|lawyer|dentist){_KIN}\b"
            r"|\b(?:i'm|i am|we're|we are|is|are|got) (?:married|engaged|divorced|dating|single)\b"
        ),
    ),
    (
        FactKind.NUMBER,
        0.75,
        "0",
        (
            r"[€$£¥]\s?\d|\b\d[\d.,]*\s?(?:€|\$|£|%|euros?\b|eur\b|dollars?\b|usd\b|pounds?\b"
            r"|kg\b|km\b"
            r"|cm\b|gb\b|tb\b|litres?\b|sqm\b|m²)|\b\d{1,3}(?:\.\d{1,3}){3}\b"
            r"|\b(?:number|size|code|id|port|budget|rent|price|salary|model|version"
            r"|account)\b.{0,30}"
            r"\b(?:is|are|was)\b.*\d"
        ),
    ),
    (
        FactKind.POSSESSION,
        0.7,
        "have had got own owned bought sold drive inherited we've i've",
        (
            rf"{_I} (?:have |has |had |got |own |owned |bought |sold |drive |inherited )+"
            r"(?:an? |the |two |three |four |\d+ |some |my |our )\w+|\b(?:i|we) (?:own|bought|sold"
            r"|drive) \w+"
        ),
    ),
    (
        FactKind.OTHER,
        0.7,
        "i we i'm my our",
        (
            r"\b(?:i|we)(?: \w+)? (?:work|study|studied|speak|need|want|run|teach|play|use"
            r"|plan|train"
            r"|volunteer)\b"
            r"|\bi(?:'m| am) (?:an? |the |learning|writing|working|studying|building|planning"
            r"|training"
            r"|retired"
            r"|unemployed|looking for|moving)|^(?:and |but |so )*(?:my"
            r"|our) (?:[\w-]+ ){1,4}?(?:is|are"
            r"|was|were|has"
            r"|have|makes?|sells?|lives?|works?|needs?|wants?|likes?|does|runs?|uses?)\b"
        ),
    ),
    (
        FactKind.OTHER,
        0.4,
        "i we",
        (
            r"\b(?:i|we) (?:\w+ly |just )?(?:took|went|wrote|made|found|saw|got|spent|won|met|began"
            r"|learnt|taught|lost|quit"
            r"|left|built|sold|drew|gave|ran|swam|flew|drove|read|(?!asked|wanted|needed|used|hoped"
            r"|liked|loved|wondered)\w{3,}ed)"
            r" (?!it\b|that\b|you\b)\w+"
        ),
    ),
)
_OF_NAMES = (
    r"\b(?!(?:This|That|It|There|Here|What|Lots|Life|Everything|Nothing|Something|Someone|Everyone"
    r"|People|Time"
    r"|Your?|They|These|Those|Who|Which|Each|One|All|Nobody|Today|He|She"
    r"|We)\b)[A-Z][a-zà-ÿ]+(?:'s \w+)?"
    r" (?:lives|lived|moved|works|worked|likes|loves|hates|prefers|needs|wants|has|owns|studies"
    r"|teaches"
    r"|is (?:on|in|at|an?|my|our|allergic|married|pregnant|away|moving)|left|joined|died|quit)\b"
)
_BY_ASSISTANT = frozenset({FactKind.PROMISE, FactKind.DECISION})
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: FactKind
    weight: float
    needs: frozenset[str]
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules, made when first used: that takes as long as a thousand messages."""

    rules: tuple[_Rule, ...]
    chatter: re.Pattern[str]
    of_names: re.Pattern[str]


@cache
def _rules() -> _Rules:
    return _Rules(
        tuple(
            _Rule(kind, weight, frozenset(needs.split()), re.compile(pattern))
            for kind, weight, needs, pattern in _RULES
        ),
        re.compile(_CHATTER),
        re.compile(_OF_NAMES),
    )


_I_AM_NAME = re.compile(r"\b(?:I'm|I am|[Tt]his is) ([A-Z][a-zà-ÿ]{1,20})\b(?! (?:food|time)\b)")
_NO_NAMES = re.compile(
    r"(?:I'm|I am) (?:German|French|English|American|British|Italian|Spanish|Dutch|Polish|Chinese"
    r"|Japanese"
    r"|Indian|Swiss|Austrian|Irish|Russian|Turkish|Catholic|Jewish|Muslim|Buddhist|Christian)\b"
)
_ENGLISH = word_set(
    "the is are was i you we my and of to that this it for have what with not please do can in a"
)
_INTRODUCED = frozenset({"i'm", "am", "this"})
_TIME_WORDS = frozenset(
    {
        f"{day}day{s}"
        for day in ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")
        for s in ("", "s")
    }
    | word_set("tomorrow tonight yesterday next this last in by until since")
)
_FOREIGN = re.compile(r"\d|(?<=[a-zà-ÿ,] )[A-ZÀ-Þ][a-zà-ÿ]{2,}.*\s[A-ZÀ-Þ]?[a-zà-ÿ]{2,}")
_RELATIVE = re.compile(
    rf"\b(?:(today|tonight)|(tomorrow)|(yesterday)|(?:on|this|next|by|until) ({_DAY}))\b",
    re.IGNORECASE,
)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def facts_in(role: str, text: str, at: int) -> list[Fact]:
    """Return the facts of a message, in its order; `at` is the time of the message in ms.

    Of a user everything counts, of an assistant its promises and what was decided, of others
    nothing. Sentences that look like passwords, keys or cards are left out.
    """
    if role not in {"user", "assistant"} or not text:
        return []
    facts: list[Fact] = []
    seen: set[str] = set()
    for sentence in sentences(text):
        fact = _fact(role, sentence, at)
        if fact is not None and fact.text not in seen:
            seen.add(fact.text)
            facts.append(fact)
    if len(facts) > _MAX_FACTS:
        heaviest = sorted(facts, key=lambda fact: -fact.weight)[:_MAX_FACTS]
        facts = [fact for fact in facts if fact in heaviest]
    return facts


def _fact(role: str, sentence: str, at: int) -> Fact | None:
    if not 4 <= len(sentence) <= MAX_SENTENCE or sentence[-1] in "?？؟":
        return None
    plain = sentence.replace("’", "'") if "’" in sentence else sentence
    kind_and_weight = _kind(role, plain)
    if kind_and_weight is None or looks_secret(plain):
        return None
    kind, weight = kind_and_weight
    return Fact(sentence, kind, weight, day_meant(plain, at))


def _kind(role: str, sentence: str) -> tuple[FactKind, float] | None:
    rules = _rules()
    lower = sentence.lower()
    if rules.chatter.match(lower):
        return None
    user = role == "user"
    words = _words(lower)
    if (
        user
        and not words.isdisjoint(_INTRODUCED)
        and _I_AM_NAME.search(sentence)
        and not _NO_NAMES.search(sentence)
    ):
        return FactKind.NAME, 0.95
    for rule in rules.rules:
        if not user and rule.kind not in _BY_ASSISTANT:
            continue
        if not rule.needs.isdisjoint(words) and rule.pattern.search(lower):
            return rule.kind, rule.weight
    if not user:
        return None
    if rules.of_names.search(sentence):
        return FactKind.OTHER, 0.5
    if words.isdisjoint(_ENGLISH) and _FOREIGN.search(sentence):
        return FactKind.OTHER, 0.5
    return None


def _words(lower: str) -> set[str]:
    """Return the words of a sentence, with signs for other things that the rules need."""
    words = set(_WORD.findall(lower))
    if "'s" in lower:
        words.update([word[:-2] for word in words if word.endswith("'s")])
    if _DIGIT.search(lower):
        words |= {"0", "@", "+time"}
    elif "@" in lower or "://" in lower or "www." in lower:
        words.add("@")
    if not words.isdisjoint(_TIME_WORDS):
        words.add("+time")
    return words


def day_meant(sentence: str, at: int, zone: tzinfo = UTC) -> str:
    """Return the day (ISO 8601) that "tomorrow" or "on Friday" meant at a time; empty for none."""
    match = _RELATIVE.search(sentence)
    if match is None:
        return ""
    try:
        message_day = datetime.fromtimestamp(at / 1000, zone).date()
        if match[4]:
            ahead = (_DAYS.index(match[4][:3].lower()) - message_day.weekday()) % 7 or 7
        else:
            ahead = 0 if match[1] else 1 if match[2] else -1
        return (message_day + timedelta(days=ahead)).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""
