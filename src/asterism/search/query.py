"""What a question to the search asks for: which words, whose, of when, what kind of answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from itertools import pairwise
from unicodedata import normalize

from asterism.memory import people
from asterism.memory.words import word_set, words
from asterism.search.dates import time_of
from asterism.search.texts import AGENT, PERSON, STOP_WORDS, terms_of
from asterism.store import agents
from asterism.store.database import Connection
from asterism.types.agents import OWNER, Account, Participants

MAX_CHARACTERS = 2_000
"""What a longer question says after these is not looked at."""
_MAX_PHRASES = 16


class Asks(IntFlag):
    """What kind of answer a question wants; none of them: some fact."""

    PLACE = 1
    """Somewhere: `Where did we eat?`"""
    HELP = 2
    """Something to be done or advised, for which standing wishes count: `Could you write …`"""
    SUMMARY = 4
    """All that was said of something, in short."""


NO_HINT = Asks(0)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A question as a ranking sees it."""

    text: str
    terms: list[str] = field(default_factory=list[str])
    """Its terms without the names of speakers, in their order, repeated ones too."""
    names: list[str] = field(default_factory=list[str])
    """The terms of the names of speakers: they are words where nobody speaks, as in a document."""
    phrases: list[str] = field(default_factory=list[str])
    """What stands in quotes, as it is written."""
    prefixes: list[str] = field(default_factory=list[str])
    """Beginnings of words, written as `garden*`, in lower case."""
    speakers: dict[str, float] = field(default_factory=dict[str, float])
    """Whose words are asked for, with shares that add up to one; empty: anybody's."""
    bare: str = ""
    """Its text without the names of speakers: a name draws a vector to all that a speaker said."""
    when: bool = False
    """It asks for a time or a duration."""
    number: bool = False
    """It asks for a number or an amount."""
    span: tuple[int, int] | None = None
    """The first and the last millisecond of the time that it names."""
    dated: bool = False
    """That time is written with its year; else it is counted from now, as `last week` is."""
    asks: Asks = NO_HINT


def read(
    query: str,
    names: Mapping[str, str],
    asker: str | None,
    agent: str,
    now: int | None = None,
) -> ParsedQuery:
    """Read a question; `names` are those of speakers in lower case, each with its label.

    `asker` is the label of who says `I`, `agent` that of who is called `you`; days are counted from
    `now`. Any text is a question, if need be one without terms.
    """
    text = query[:MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    named = _named(text, names)
    bare = _without(text, named)
    prefixes = [match[1].lower() for match in _PREFIX.finditer(text)]
    # Some letters stand for whole sentences once they are normalised.
    plain = normalize("NFKC", _PREFIX.sub(" ", bare))[:MAX_CHARACTERS]
    terms = terms_of(words(plain))
    if not terms and not prefixes:
        terms = terms_of(words(normalize("NFKC", text)[:MAX_CHARACTERS]))
    lowered = " ".join(text.lower().split())
    time = None if now is None else time_of(text, now)
    return ParsedQuery(
        text=text,
        terms=terms,
        names=terms_of(words(" ".join(text[name.start : name.end] for name in named))),
        phrases=_phrases(text),
        prefixes=prefixes,
        speakers=_speakers(text, named, asker, agent),
        bare=bare or text.strip(),
        when=_WHEN.search(lowered) is not None,
        number=_NUMBER.search(lowered) is not None,
        span=time[:2] if time else None,
        dated=time is not None and time[2],
        asks=_asks(lowered, of_others=bool(named) and not _MINE.search(lowered)),
    )


_PREFIX = re.compile(r"(?<![\w*])(\w{2,})\*(?![\w*])")
_QUOTED = re.compile(
    r'"([^"]*)"|\u201c([^\u201c\u201d]+)\u201d|\u201e([^\u201c\u201d\u201e]+)[\u201c\u201d]|'
    r"\u00ab([^\u00ab\u00bb]+)\u00bb|\u2039([^\u2039\u203a]+)\u203a|\u300c([^\u300c\u300d]+)\u300d|"
    r"\u300e([^\u300e\u300f]+)\u300f|(?<!\w)\u2018([^\u2018]+?)\u2019(?!\w)|(?<!\w)'([^'\s](?:[^']|'(?=\w))*)'(?!\w)|"
    r"\uff02([^\uff02]+)\uff02|(?<!\w)`([^`]+)`"
)


def _phrases(text: str) -> list[str]:
    result: list[str] = []
    for match in _QUOTED.finditer(text):
        phrase = " ".join((match[match.lastindex or 0]).split())
        if any(character.isalnum() for character in phrase) and phrase not in result:
            result.append(phrase)
    return result[:_MAX_PHRASES]


@dataclass(frozen=True, slots=True)
class _Name:
    start: int
    end: int
    label: str


_WORDS_TOO = STOP_WORDS | word_set(
    "mark bill rose grace hope faith joy art chase drew pat sky dawn summer autumn april june"
    " august jack sunny penny iris ivy lily daisy violet ruby pearl amber ginger heather holly"
    " olive jasmine rob sue don frank grant miles wade wood dean duke earl king max star storm"
    " melody harmony angel agent assistant user owner"
)
"""Names that are words too: they are names where they have a capital within a sentence."""
_CAPITAL = re.compile(r"(?<!\w)[A-Z][a-z]{2,9}(?=\W|$)")


def _named(text: str, names: Mapping[str, str]) -> list[_Name]:
    """Return where speakers are named, longer names before those within them."""
    # The one letter whose small form is longer would shift all that follows.
    lowered = text.replace("\u0130", "I").lower()
    result: list[_Name] = []
    inside = [name for name in names if name.strip() and name in lowered]
    for name in sorted(inside, key=len, reverse=True):
        edge = r"\w" if name.isascii() else r"[a-z0-9_]"
        for match in re.finditer(rf"(?<!{edge}){re.escape(name)}(?!{edge})", lowered):
            if any(name.start < match.end() and match.start() < name.end for name in result):
                continue
            if name in _WORDS_TOO and not _is_capital_within(text, match.start()):
                continue
            result.append(_Name(match.start(), match.end(), names[name]))
    if not result:
        result = _short_names(text, names)
    return sorted(result, key=lambda name: name.start)


def _is_capital_within(text: str, start: int) -> bool:
    return text[start].isupper() and text[:start].rstrip()[-1:] not in ("", ".", "!", "?", ":")


def _short_names(text: str, names: Mapping[str, str]) -> list[_Name]:
    """Return names that are cut short, as Mel for Melanie, where just one speaker may be meant."""
    result: list[_Name] = []
    for match in _CAPITAL.finditer(text):
        short = match[0].lower()
        if short in _WORDS_TOO or not text[: match.start()].strip():
            continue
        meant = {label for name, label in names.items() if name.startswith(short)}
        if len(meant) == 1:
            result.append(_Name(match.start(), match.end(), meant.pop()))
    return result


_POSSESSIVE = re.compile(r"['\u2019]s?(?!\w)")


def _without(text: str, named: list[_Name]) -> str:
    parts: list[str] = []
    at = 0
    for name in named:
        parts.append(text[at : name.start])
        own = _POSSESSIVE.match(text, name.end)
        at = own.end() if own else name.end
    return " ".join(" ".join([*parts, text[at:]]).split())


_POLITE = re.compile(
    r"\b(?:can|could|would|will)\s+you\s+(?:please\s+)?(?!suggested|recommended)\w+|"
    r"\b(?:do|did)\s+you\s+(?:know|remember|recall|think)\b|\bthank\s+you\b|\bif\s+you\b"
)
_MINE = re.compile(r"\b(?:i|my|me|mine|myself|i['\u2019](?:m|ve|d|ll))\b")
_YOURS = re.compile(
    r"\b(?:did|have|had|were|do|are)\s+you\b|\byou\s+(?:had\s+|have\s+|ever\s+)?(?:said|say|told|"
    r"gave|wrote|made|sent|did|were|thought|\w+ed)\b|\byou['\u2019](?:ve|d)\b|\byour(?:s|self)?\b"
)


_I_DO = re.compile(r"^i\b|\b(?:did|do|have|had|was|am|were|will|should|can)\s+i\b")
_JOINED = re.compile(r"(?:['\u2019]s)?(?:\s*(?:,|and|or|&|\+))+\s*")


def _speakers(text: str, named: list[_Name], asker: str | None, agent: str) -> dict[str, float]:
    """Share out whose words are asked for: those of who is named, else by `I` and `you`."""
    lowered = text.lower()
    mine = asker is not None and _MINE.search(lowered) is not None
    if named:
        shares = _shares_of_named(text, named)
        if asker is not None and asker not in shares and _I_DO.search(lowered[: named[0].start]):
            # "What did I tell Ann?"
            shares = {asker: 0.7} | {label: 0.3 * share for label, share in shares.items()}
        return shares
    yours = _YOURS.search(_POLITE.sub(" ", lowered)) is not None
    if yours and mine and asker is not None and asker != agent:
        return {agent: 0.6, asker: 0.4}
    if yours:
        return {agent: 1.0}
    return {asker: 1.0} if mine and asker is not None else {}


def _shares_of_named(text: str, named: list[_Name]) -> dict[str, float]:
    """Give those named an equal share, if they are named side by side; else the first one most."""
    labels = list(dict.fromkeys(name.label for name in named))
    gaps = [text[name.end : other.start] for name, other in pairwise(named)]
    if len(labels) == 1 or all(_JOINED.fullmatch(gap) for gap in gaps[: len(labels) - 1]):
        return {label: 1 / len(labels) for label in labels}
    # Measured on real questions: of two who are named apart, the first said it four times in five.
    rest = 0.2 / (len(labels) - 1)
    return {label: rest if at else 0.8 for at, label in enumerate(labels)}


_UNITS = r"(?:days?|nights?|weeks?|weekends?|months?|years?|hours?|minutes?)"
_WHEN = re.compile(
    r"\b(?:when\s+(?:did|does|do|is|are|was|were|will|has|have|had|should|can|would|exactly)\b|how\s+long\b|"
    rf"how\s+(?:many|much)\s+(?:\w+\s+)?{_UNITS}\b|how\s+(?:soon|recently|often|old)\b|since\s+when|until\s+when|"
    r"by\s+when|(?:what|which)(?:\s+(?:is|was|are|were))?(?:\s+the)?(?:\s+\w+)?\s+(?:dates?|days?|months?|year|times?|"
    r"deadline|weekend|week|season|hour)\b|(?:date|deadline|time)\s+(?:of|for)\b)|^\s*when\b(?!.*,)"
)
_NUMBER = re.compile(
    r"\b(?:how\s+(?:many|much|old|tall|far|big|large|long|often|high|fast|heavy)\b|what(?:\s+(?:is|was|are|were))?"
    r"(?:\s+(?:the|my|your|his|her|their|our))?(?:\s+\w+){0,2}?\s+(?:number|amount|percentage|percent|price|cost|"
    r"budget|rate|score|total|age|size|count|salary|income|limit|target)\b|what\s+percentage)"
)


_LEAD = r"^(?:(?:please|so|and|but|hey|hi|hello|ok|okay|well|also)[\s,]+)*"
_ASKED = r"(?:^|[,;:.?!]\s|\b(?:and|or|but|so|of|with|to|for|from|by|me|know|remember|is|was)\s)"
"""What stands before a word that asks, but not before one that joins two clauses."""
_PLACE = re.compile(
    rf"{_ASKED}where\b|\b(?:which|what)\s+(?:\w+\s+)?(?:places?|city|cities|country|countries|states?|"
    r"towns?|villages?|locations?|restaurants?|streets?|address|venue|area|park|beach)\b"
)
_SUMMARY = re.compile(r"\b(?:summar(?:y|ies|i[sz]e\w*)|overview|recap\w*)\b")
_WHOLE = re.compile(
    r"\b(?:summar(?:y|ies|i[sz]e\w*)|overview|in\s+(?:what|which)\s+order|the\s+order\s+in\s+which|in\s+order\b(?!\s+to)|"
    r"(?:developed|evolved|progressed|changed)\s+(?:over|across|throughout)|over\s+time|timeline|chronolog\w+)"
)
_DO = (
    r"(?:help|write|create|make|draft|show|give|explain|suggest|recommend|design|set\s+up|build|generate|provide|"
    r"plan|prepare|compose|fix|find|describe|outline|review|improve|teach|guide|walk|tell|list|translate|format|check)"
)
_HELP = re.compile(
    _LEAD + rf"(?:{_DO}\b(?!\s+(?:did|do|does|is|was))|"
    rf"(?:can|could|would|will)\s+you\s+(?:please\s+)?{_DO}\b)|"
    r"\b(?:would|do|should|can|could)\s+you\s+(?:suggest|recommend|advise)\b|"
    r"\b(?:how|what|which|where|who)\b[^.?!]{0,150}\b(?:should|can|could|might)\s+(?:i|we)\b|"
    r"\bwhat\s+(?:are|would\s+be)\s+(?:some|a\s+good|good|the\s+best)\b|\bhelp\s+me\b|"
    r"\bany\s+(?:tips|advice|suggestions?|ideas?|recommendations?)\b|\bwhat\s+can\s+you\s+tell\s+me\b|"
    r"\bwhat\s+(?:\w+\s+)?(?:steps|tips|ways|methods|strategies|techniques)\b(?!.*\bdid\b)|"
    r"(?:^|[.!?,;]\s)(?:and\s|but\s|so\s)?i(?:['\u2019]m|\s+am)\s+(?:trying|looking|planning|thinking|working|preparing|considering|about)\b|"
    r"(?:^|[.!?,;]\s)(?:and\s|but\s|so\s)?i(?:['\u2019]d\s+like|\s+(?:want|need|would\s+like))\s+(?:to|you|some|a|help)\b"
)
_TOLD = re.compile(
    r"\bdid\s+(?:i|you|we)\b|\bhave\s+i\b|\bi\s+(?:said|told|mentioned)\b|\bremind\s+me\b"
)


def _asks(lowered: str, *, of_others: bool) -> Asks:
    asks = NO_HINT
    if _PLACE.search(lowered):
        asks |= Asks.PLACE
    if _SUMMARY.search(lowered):
        asks |= Asks.SUMMARY
    elif not (of_others or _WHOLE.search(lowered) or _TOLD.search(lowered)):
        asks |= Asks.HELP if _HELP.search(lowered) else NO_HINT
    return asks


_MIN_NAME = 2
_MAX_AGENTS = 40


@dataclass(slots=True)
class Speakers:
    """Those who speak in some texts."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Who is behind each label: a person's id, `agent`, or the label of somebody unknown."""
    shown: dict[str, str] = field(default_factory=dict[str, str])
    """The name to show, by label."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Names in lower case by which a question may mean somebody, each with who that is."""

    def add(self, label: str, id: str, shown: str, *also: str) -> None:
        """Note who is behind a label, and by what names they go."""
        self.ids[label], self.shown[label] = id, shown
        names = [*(shown, *also), *(name.split()[0] for name in (shown, *also) if name.split())]
        for name in names:
            if len(name) >= _MIN_NAME:
                self.names.setdefault(name.casefold(), id)

    def meant_by(self, who: str) -> frozenset[str]:
        """Return the labels of those who go by a name, an id or an account."""
        wanted = " ".join(who.split()).casefold()
        return frozenset(
            label
            for label, id in self.ids.items()
            if wanted in (id.casefold(), label.casefold(), self.shown[label].casefold())
            or self.names.get(wanted) == id
        )


async def speakers_of(
    tx: Connection, constellation: str, labels: Sequence[str], agent_ids: Sequence[str]
) -> Speakers:
    """Find out who is behind the labels of texts of some agents."""
    result = Speakers()
    called: list[str] = []
    if AGENT in labels and len(agent_ids) <= _MAX_AGENTS:
        called = [one.name for id in agent_ids if (one := await agents.by_id(tx, id)) is not None]
    accounts = {
        label: Account(*label.split(":", 1)) for label in dict.fromkeys(labels) if ":" in label
    }
    known = (
        await people.people_of_accounts(tx, constellation, list(accounts.values()))
        if accounts
        else {}
    )
    for label, account in accounts.items():
        if account.channel == PERSON and account not in known:
            person = await people.get_person(tx, constellation, account.sender)
            if person is not None:
                result.add(label, person.id, person.name)
                continue
        id, name = known.get(account, (label, label))
        # Strangers are named after their account, of which the channel says nothing.
        result.add(label, id, account.sender if name == label else name, account.sender)
    if AGENT in labels:
        result.add(AGENT, AGENT, called[0] if len(called) == 1 else AGENT, *called)
    if OWNER in labels:
        owner = await people.get_person(tx, constellation, OWNER)
        result.add(OWNER, OWNER, owner.name if owner is not None else OWNER)
    return result


def asker_of(participants: Participants) -> str | None:
    """Return who says `I` in a question, as far as that is one of those present."""
    if participants.owner_alone:
        return OWNER
    return participants.people[0].person_id if len(participants.people) == 1 else None
