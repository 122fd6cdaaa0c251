"""What must not be lost when messages leave the context, found by rule, sentence by sentence.

The rules were tuned on tests/data/facts_tuned.txt and are measured on facts_held_out.txt by
`python -m bench.likeness`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import cache
from pathlib import Path

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


_MAX_CHARACTERS = 64_000
_MAX_FACTS = 50
_MAX_SENTENCE = 400
"""Characters of a sentence. A longer sentence is not a fact."""

_SENTENCE = re.compile(
    # Not after "Dr." or in "e.g.", and after a number only before what can begin a sentence.
    r"(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\bDr\.)(?<!\bMr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bNo\.)"
    r"(?:(?<!\d\.)\s+|\s+(?=[^\Wa-z\d])"
    r"(?!(?:Jan|Feb|M[aä]r|Apr|Ma[iy]|Jun|Jul|Aug|Sep|O[ck]t|Nov|De[cz])[a-zä]*\b))"
    r"|(?<=[。！？؟।])|[\n\r\v\f\x00]+"
)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)

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

_SECRET = (
    r"\b(?:passwor[dt]|passwd|passphrase|passcode|kennwort|mot de passe|contraseña|пароль|pin|puk"
    r"|cvv|cvc|api[ -]?keys?|secret|access key|private key|recovery (?:code|phrase)|seed phrase"
    r"|tokens?|credentials?|one-time code|otp)\b.{0,40}(?:\bis\b|\bare\b|\bist\b|[:=]|—|–|-\s)"
    r"|\b(?:sk|pk|rk)[-_][\w-]{12,}|\bgh[pousr]_\w{16,}|\bxox[abpr]-\S+|\bAKIA\w{12,}|\beyJ\w{10,}"
    r"|-----BEGIN|\b(?:\d{4}[ -]?){3}\d{4}\b"
)
_MIXED = re.compile(r"(?<![/\w.@])(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}")
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
    secret: re.Pattern[str]
    chatter: re.Pattern[str]
    of_names: re.Pattern[str]


@cache
def _rules() -> _Rules:
    return _Rules(
        tuple(
            _Rule(kind, weight, frozenset(needs.split()), re.compile(pattern))
            for kind, weight, needs, pattern in _RULES
        ),
        re.compile(_SECRET, re.IGNORECASE),
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
    text = text[:_MAX_CHARACTERS]
    if "```" in text:
        text = _CODE.sub("\n", text)
    facts: list[Fact] = []
    seen: set[str] = set()
    for sentence in _SENTENCE.split(text):
        fact = _fact(role, sentence.strip(), at) if sentence else None
        if fact is not None and fact.text not in seen:
            seen.add(fact.text)
            facts.append(fact)
    if len(facts) > _MAX_FACTS:
        heaviest = sorted(facts, key=lambda fact: -fact.weight)[:_MAX_FACTS]
        facts = [fact for fact in facts if fact in heaviest]
    return facts


def looks_secret(text: str) -> bool:
    """Tell whether a text seems to contain a password, a key or a card number."""
    return bool(_rules().secret.search(text) or _MIXED.search(text))


def _fact(role: str, sentence: str, at: int) -> Fact | None:
    if not 4 <= len(sentence) <= _MAX_SENTENCE or sentence[-1] in "?？؟":
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


# -- what a person wants to be kept, where a rule is exact -----------------------------------------

_VALUE = r"[\w][\w'.:-]{0,30}(?: [\w][\w'.:-]{0,30}){0,3}"
_CORRECTIONS = (
    # The old value before the new one, then the other way round.
    re.compile(
        rf"\b(?:nicht|not|no|non|niet) (?P<old>{_VALUE}?),? (?:sondern|but|sino|ma|maar)"
        rf" (?P<new>{_VALUE})[.!]*$",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?P<new>{_VALUE}),? (?:and )?(?:not|no|pas|non|niet|не) (?P<old>{_VALUE}?)[.!]*$",
        re.IGNORECASE,
    ),
)
_MAX_KEPT = 5
_MAX_ASKED = 4_000
"""Characters of a message that is asked to be kept; longer ones are left to the agent."""


@dataclass(frozen=True, slots=True)
class _KeepRules:
    """The rules of `keep.toml`, made when first used."""

    request: re.Pattern[str]
    at_end: re.Pattern[str]
    lasting: re.Pattern[str]
    passing: re.Pattern[str]
    corrects: re.Pattern[str]
    previous: re.Pattern[str]


_ASKS_WHETHER = re.compile(
    r"(?:\w+[,!]? )?(?:do|did|can|could|will|would)(?:n't)? (?:you|we) (?:still |even )?remember\b"
    r"(?! that\b)",
    re.IGNORECASE,
)
_UNSPACED = frozenset({"zh", "ja"})
_SIGH = r"(?:[aou]+[hgr]+|h?mm+|u[hm]+|ähm?|eh|ach|ay|uy)?[,.!… ]*"


@cache
def _keep_rules() -> _KeepRules:
    text = Path(__file__).with_name("keep.toml").read_text("utf-8")
    languages: dict[str, dict[str, list[str]]] = tomllib.loads(text)
    requests: list[str] = []
    lasting: list[str] = []
    passing: list[str] = []
    at_end: list[str] = []
    corrects: list[str] = []
    previous: list[str] = []
    for name, rules in languages.items():
        # Words end where a letter does not follow, in scripts that part them.
        end, space = ("", r"[,，:：\s]*") if name in _UNSPACED else (r"(?!\w)", r"[\s:,–-]+")
        polite = _one_of(rules["polite"], f"{end}[,:!]?\\s*") if rules["polite"] else ""
        start = f"(?:{polite})*" if polite else ""
        if rules["requests"]:
            that = f"(?:{_one_of(rules['that'], space)})*" if rules["that"] else ""
            but_not = f"(?!{_one_of(rules['but_not'], end)})" if rules["but_not"] else ""
            requests.append(f"{start}{_one_of(rules['requests'])}{space}{that}{but_not}")
        lasting.append(f"{start}{_one_of(rules['lasting'], end)}.+")
        passing += [f"(?<!\\w){word}{end}" if end else word for word in rules["passing"]]
        at_end += rules.get("at_end", [])
        previous.append(f"{start}{_one_of(rules['previous'])}")
        corrects.append(f"{_SIGH}{start}{_one_of(rules['corrects'], end)}")
    return _KeepRules(
        re.compile(_one_of(requests), re.IGNORECASE),
        re.compile(
            rf"(.+?)(?:という?こと)?(?:を|と|って|、)?{_one_of(at_end)}"
            r"(?:ください|下さい|くれ|ね|よ)*[。!！.]?"
        ),
        re.compile(_one_of(lasting), re.IGNORECASE | re.DOTALL),
        re.compile(_one_of(passing), re.IGNORECASE),
        re.compile(_one_of(corrects), re.IGNORECASE),
        re.compile(
            rf"{_one_of(previous)}(?P<more>,.{{3,80}})?[,\s]*(?:please|bitte|por favor|stp"
            rf"|svp)?[\s.!。！]*",
            re.IGNORECASE,
        ),
    )


def _one_of(parts: Sequence[str], then: str = "") -> str:
    return f"(?:{'|'.join(parts)}){then}"


def asked_to_keep(text: str) -> list[str]:
    """Return what a message asks to be kept, in its own words: "remember that …" without that.

    Requests are known in eleven languages. Where none is found, there may be one all the same.
    """
    if len(text) > _MAX_ASKED or not _MAY_ASK_TO_KEEP.search(text) or asks_to_keep_previous(text):
        return []
    rules = _keep_rules()
    found: list[str] = []
    for paragraph in filter(None, map(str.strip, _LIST_ITEM.split(text))):
        sentences = [sentence.strip() for sentence in _SENTENCE.split(paragraph) if sentence]
        for place, sentence in enumerate(sentences):
            fact = _without_request(sentence, rules)
            if fact and ":" in sentence[: len(sentence) - len(fact)]:
                # What follows a colon goes on to the end of its paragraph.
                rest = [part for part in sentences[place + 1 :] if not part.endswith(("?", "？"))]
                found.append(". ".join([fact, *rest]) if rest else fact)
                break
            if fact:
                found.append(fact)
    return found[:_MAX_KEPT]


_LIST_ITEM = re.compile(
    r"\n|(?:^|\s)\(?\d\)\s|,?\s+(?:and|und|et|y|e)\s+(?=(?:please |also )?(?:remember|memori[sz]e"
    r"|merk"
    r"|retiens|recuerda|ricorda|lembra)\b)",
    re.IGNORECASE,
)
"""What stands between the things that a message asks for."""


_MAY_ASK_TO_KEEP = re.compile(
    r"rem[em]{1,3}b|memori|mind|forget|note|notier|save|keep|write|jot|merk|vergiss|denk|behalt"
    r"|schreib|souv|rappel|retien|reten|oubli|rec[ou]|acu[eé]rd|olvid|ap[uú]nt|an[oó]t|cuenta|ricord"
    r"|tieni|dimentic|segn|annot|lembr|esque|onthou|vergeet|noteer|pamięt|zapom|zanot|запом|забуд"
    r"|запиш|记|記|覚|メモ|憶",
    re.IGNORECASE,
)
"""A part of every request of `keep.toml`: most messages have none, which is found at once."""


def asks_to_keep_previous(text: str) -> bool:
    """Tell whether a message asks to have kept what was said before it: "remember that, please"."""
    if not _MAY_ASK_TO_KEEP.search(text):
        return False
    last = sentences(text)[-1:] if len(text) <= _MAX_ASKED else []
    return bool(last) and _keep_rules().previous.fullmatch(last[0].replace("’", "'")) is not None


def previous_to_keep(text: str, before: Sequence[str]) -> str:
    """Return what a message such as "remember that" means, in the words in which it was said.

    Args:
        text: The message.
        before: What was said before it, and what was answered.
    """
    if not asks_to_keep_previous(text):
        return ""
    parts = sentences(text)
    own = [part for part in parts[:-1] if part[-1] not in "?？؟"]
    match = _keep_rules().previous.fullmatch(parts[-1].replace("’", "'"))
    more = (match["more"] or "").lstrip(", ").rstrip(".!") if match is not None else ""
    statements = [said for said in before if said.strip() and said.strip()[-1] not in "?？؟"]
    kept = own[-1] if own else (statements[0].strip() if statements else "")
    if len(kept) > _MAX_SENTENCE or looks_secret(kept):
        return ""
    return f"{kept} ({more})" if kept and more else kept


def _without_request(sentence: str, rules: _KeepRules) -> str:
    """Return what a sentence asks to be kept; nothing if it asks for something else."""
    plain = sentence.replace("’", "'")
    if _ASKS_WHETHER.match(plain):
        return ""
    if (match := rules.request.match(plain)) is not None:
        fact = sentence[match.end() :]
    elif (match := rules.at_end.fullmatch(plain)) is not None:
        fact = match[1]
    else:
        return ""
    fact = re.sub(r"[,;]?\s*(?:please|bitte|thanks|por favor)?\s*[?!.]*$", "", fact.strip())
    return fact if len(fact) >= _LEAST_FACT else ""


_LEAST_FACT = 3


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, code left out."""
    parts = _SENTENCE.split(_CODE.sub("\n", text[:_MAX_CHARACTERS]))
    return [sentence.strip() for sentence in parts if sentence and sentence.strip()]


def lasting_facts(text: str) -> list[str]:
    """Return the sentences in which a person says something lasting, by exact rules alone.

    "My name is …", "I live in …", "I am allergic to …" and the like. What they leave is a model's
    to read. What holds today only, questions, and what looks like a password are left out.
    """
    if len(text) > _MAX_ASKED:
        return []
    rules = _keep_rules()
    found: list[str] = []
    for sentence in sentences(text):
        plain = sentence.replace("’", "'")
        if len(sentence) > _MAX_SENTENCE or sentence[-1] in "?？؟":
            continue
        if (
            rules.lasting.match(plain)
            and not rules.passing.search(plain)
            and not looks_secret(plain)
        ):
            found.append(sentence)
    return found[:_MAX_KEPT]


_MAX_CORRECTION = 160
"""Characters; a longer message tells something of its own."""


def is_correction(text: str) -> bool:
    """Tell whether a message seems to put right what was said before: "no, 41", "I meant Tom"."""
    plain = text.strip().replace("’", "'")
    if not plain or len(plain) > _MAX_CORRECTION or plain[-1] in "?？؟":
        return False
    return _keep_rules().corrects.match(plain) is not None or correction_in(plain) is not None


def is_question(text: str) -> bool:
    """Tell whether a message asks something, with or without a question mark."""
    return _QUESTION.search(text) is not None


_QUESTION = re.compile(
    r"[?\uff1f\u061f]|^\W*(?:what|whats|which|who|whos|whose|when|where|why|how|do you|did|does|is"
    r"|was|are|tell me|remind me (?:what|when|where|who|how|which)|wie|wer|wo|wann|was|welche\w*"
    r"|wei(?:ss|ß)t|que|qué|qui[eé]n|cu[aá]ndo|d[oó]nde|cu[aá]l|c[oó]mo|a qu[eé]|qui|quand|o[uù]"
    r"|quel\w*|comment|chi|dove|quando|quale|come|a che|quem|onde|qual|como)\b"
    r"|何|いつ|どこ|誰|だれ|どの|どれ|いくら|いくつ|ですか|ますか|什么|哪|谁|几|多少|吗",
    re.IGNORECASE,
)


_DAY_NAMES = (
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch"
    r"|lunes|martes|mi[eé]rcoles|jueves|viernes|s[aá]bado|domingo|lundi|mardi|mercredi|jeudi"
    r"|vendredi|samedi|dimanche|luned[iì]|marted[iì]|mercoled[iì]|gioved[iì]|venerd[iì]|sabato"
    r"|domenica|(?:segunda|ter[cç]a|quarta|quinta|sexta)(?:-feira)?|tomorrow|today|morgen|heute"
    r"|[月火水木金土日]曜日?"
)
_MONTH_NAMES = (
    r"january|february|march|april|may|june|july|august|september|october|november|december"
    r"|januar|februar|m[aä]rz|mai|juni|juli|oktober|dezember|enero|febrero|marzo|abril|mayo|junio"
    r"|julio|agosto|septiembre|octubre|noviembre|diciembre|janvier|f[eé]vrier|mars|avril|juin"
    r"|juillet|ao[uû]t|septembre|octobre|novembre|d[eé]cembre"
)
_NUMBER_NAMES = (
    r"two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|zwei|drei|vier|f[uü]nf|sechs"
    r"|sieben"
    r"|acht|neun|zehn|elf|zw[oö]lf|dos|tres|cuatro|cinco|siete|ocho|nueve|diez|deux|trois|quatre"
    r"|cinq|sept|huit|neuf|dix"
)
_VALUES = (
    re.compile(rf"\b(?:{_DAY_NAMES})\b", re.IGNORECASE),
    re.compile(rf"\b(?:{_MONTH_NAMES})\b", re.IGNORECASE),
    re.compile(r"(?<![\d:.])\d{1,2}(?:[:.h]\d{2}(?!\d)(?: ?[ap]m\b)?| ?[ap]m\b)", re.IGNORECASE),
    re.compile(r"(?<![A-Za-z\d.,])[A-Za-z]*\d(?:[A-Za-z\d]|[.,:/-](?=\d))*"),
    re.compile(rf"\b(?:{_NUMBER_NAMES})\b", re.IGNORECASE),
    # Names stand within a sentence; at its beginning every word has a capital letter.
    re.compile(r"(?<![.!?…] )(?<!^)(?<!\w)[A-ZÀ-Þ][a-zà-ÿ-]{1,30}(?: [A-ZÀ-Þ][a-zà-ÿ-]{1,30})*"),
)
"""Kinds of values of which one may take the place of another."""
_NO_NAMES_OF_PEOPLE = frozenset(("I", "I'm", "I'll", "Ich", "Uhr", "OK"))
_CLOCK = re.compile(r"\d{1,2} ?(?P<half>[ap]m)", re.IGNORECASE)


def put_right(statement: str, correction: str) -> str | None:
    """Return a statement with the value that a correction names; None if it is not clear.

    "The choir meets on Wednesday" and "no, Thursday" make "The choir meets on Thursday". It is
    clear where the statement has one value of a kind and the correction one other, or where the
    same word stands beside both ("12 tiles", "it was 15 tiles").
    """
    swap = correction_in(correction)
    if swap is not None:
        right = _replaced(statement, swap[1], swap[0])
        if right != statement:
            return right
    for pattern in _VALUES:
        old = list(pattern.finditer(statement))
        there = {match[0].casefold() for match in old}
        new = {
            match[0].casefold(): match
            for match in pattern.finditer(correction)
            if match[0].casefold() not in there and match[0] not in _NO_NAMES_OF_PEOPLE
        }
        if not old or len(new) != 1:
            continue
        (match,) = new.values()
        if len(there) > 1:
            old = [value for value in old if _neighbours(value) & _neighbours(match)]
        if len({value[0].casefold() for value in old}) == 1 and _may_replace(match, old[0]):
            return _replaced(statement, old[0][0], _value_for(match[0], old[0][0]))
    return None


def _replaced(statement: str, old: str, new: str) -> str:
    # Scripts without spaces have letters right beside a value.
    bounds = r"(?<![A-Za-zÀ-ÿ\d])", r"(?![A-Za-zÀ-ÿ\d])"
    return re.sub(re.escape(old).join(bounds), lambda _: new, statement, flags=re.IGNORECASE)


def _neighbours(value: re.Match[str]) -> set[tuple[str, str]]:
    """Return the words around a value, such as "tiles" after "12 tiles"."""
    before = re.search(r"([^\W\d_]{2,})\s$", value.string[: value.start()])
    after = re.match(r"\s([^\W\d_]{2,})", value.string[value.end() :])
    places = (("before", before), ("after", after))
    return {(place, found[1].casefold()) for place, found in places if found is not None}


def _may_replace(new: re.Match[str], old: re.Match[str]) -> bool:
    """Tell whether two numbers can be of the same: "24 chairs" is not what "5 people" corrects."""
    if not new[0].isdigit() or not old[0].isdigit():
        return True
    counted = [
        {word for place, word in _neighbours(value) if place == "after"} - _NOT_COUNTED
        for value in (new, old)
    ]
    return not all(counted) or counted[0] == counted[1]


_NOT_COUNTED = word_set(
    "please instead not since now is was are were and or but because sorry then too of in on at"
    " to for from by it thanks bitte nicht statt ist sind war und oder aber seit jetzt uhr por"
    " favor no es son era pero desde ahora en de al s'il pas est sont mais depuis maintenant non"
    " ma dal ora e"
)
"""Words behind a number that are not what it counts."""


def _value_for(new: str, old: str) -> str:
    """Return a time of day with the half of the day of the one whose place it takes."""
    clock = _CLOCK.fullmatch(old)
    return new + clock["half"] if clock is not None and new.isdigit() else new


_NEGATION = re.compile(r"\b(?:not|nicht|no|non|niet|pas|не)\b", re.IGNORECASE)


def correction_in(text: str) -> tuple[str, str] | None:
    """Return the new and the old value of a short correction, such as "Thursday, not Wednesday"."""
    sentence = text.strip().replace("’", "'")
    if not sentence or len(sentence) > _MAX_SENTENCE or sentence[-1] in "?？؟":
        return None
    if not _NEGATION.search(sentence):
        return None
    for place, pattern in enumerate(_CORRECTIONS):
        if (match := pattern.search(sentence)) is not None:
            new, old = match["new"].split(), match["old"].split()
            # The new value has as many words as the old one; others stand around it.
            value = new[: len(old)] if place == 0 else new[-len(old) :]
            return " ".join(value).rstrip(".:"), " ".join(old).rstrip(".:")
    return None
