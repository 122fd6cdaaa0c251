"""What a text says, by rule: of whom, what, and with which values; English, and no model.

Two texts are compared statement by statement: whether one says what the other does, or excludes it.
The words that the rules know are in `english.toml`, tuned and measured by `bench/likeness.py`.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from asterism.memory.words import singular, word_set, words
from asterism.times import MONTH_NUMBERS, MONTH_PATTERN

_ENGLISH: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("english.toml").read_text("utf-8")
)


def _by_word(table: str) -> dict[str, str]:
    """Return the name under which each word of a table is listed."""
    return {word: name for name, words in _ENGLISH[table].items() for word in words.split()}


def _forms() -> tuple[dict[str, str], set[str]]:
    """Return the verb of each form, and the forms of the past tense."""
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

    for verb in _ENGLISH["regular_verbs"].split():
        add(verb)
    for line in _ENGLISH["irregular_verbs"].split(","):
        verb, *others = line.split()
        add(verb)
        for form in others:
            verbs[form] = verb
            past.add(form)
    return verbs, past - {"goes"}


VERBS, PAST = _forms()
_WORDS = {name: word_set(words) for name, words in _ENGLISH["words"].items()}
SAME_PAST, CONDITIONS, NEGATIONS = _WORDS["same_past"], _WORDS["conditions"], _WORDS["negations"]
FILLERS, PRONOUNS, PLACES = _WORDS["fillers"], _WORDS["pronouns"], _WORDS["places"]
NO_PLACES, LINKS = _WORDS["no_places"], PLACES | _WORDS["links"]
SINGLE, WORDED, MANY = _WORDS["single"], _WORDS["worded"], _WORDS["many"]
EVERYWHERE, PASSIVES, HABITS = _WORDS["everywhere"], _WORDS["passives"], _WORDS["habits"]
MEASURED, WIDE = _WORDS["measured"], _WORDS["wide"]
AUXILIARIES, GROUPS = _by_word("auxiliaries"), _by_word("groups")
MODALS = {word: "" if name == "none" else name for word, name in _by_word("modals").items()}
OPPOSITES, OPPOSITE_VERBS = _by_word("opposites"), _by_word("opposite_verbs")
ENDING_VERBS = {verb: words.split() for verb, words in _ENGLISH["ending_verbs"].items()}
SINGLE_PLACE = {verb: words.split() for verb, words in _ENGLISH["single_place"].items()}
NUMBERS = _by_word("numbers")
TIMES = frozenset({"time", "date", "weekday", "month", "year"})


@cache
def phrases() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the patterns of ways to say a thing, with the one way that takes their place."""
    return tuple(
        (re.compile(pattern, re.IGNORECASE), text) for pattern, text in _ENGLISH["phrases"]
    )


_UNITS = (
    r"kg|kilograms?|kilos?|km|kilometers?|kilometres?|cm|mm|mg|ml|gb|tb|mb|ghz|grams?|g|litres?"
    r"|liters?"
    r"|years? old|years?|months?|weeks?|days?|hours?|minutes?|seconds?|percent|per cent|%|°c"
    r"|degrees?"
    r"|pages?|metres?|meters?|m|km/h|mph|miles?|feet|inches|rooms?|points?"
)
_VALUE = rf"""
      (?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    | (?P<url>(?:https?://|www\.)[^\s,;)]+)
    | (?P<iso>\b\d{{4}}-\d\d-\d\d\b)
    | (?P<date>\b\d{{1,2}}(?:st|nd|rd|th|\.)?\s(?:of\s)?(?:{MONTH_PATTERN})\b\.?(?:,?\s\d{{4}}\b)?
        | \b(?:{MONTH_PATTERN})\b\.?\s\d{{1,2}}(?:st|nd|rd|th)?\b(?!:)(?:,?\s\d{{4}}\b)?)
    | (?P<time>\b\d{{1,2}}(?::\d\d(?::\d\d)?)\s?(?:[ap]\.?m\b)?
        | \b\d{{1,2}}\s?(?:[ap]\.?m\b|o'clock\b)
        | \b\d{{1,2}}\s?h(?:\d\d)?\b)
    | (?P<money>[€$£]\s?\d[\d.,]*\d|[€$£]\s?\d
        | \b\d[\d.,]*\s?(?:euros?\b|eur\b|dollars?\b|usd\b|pounds?\b|gbp\b|chf\b|francs?\b|[€$£]))
    | (?P<phone>(?:\+|\b0)\d[\d\s()/-]{{5,18}}\d\b)
    | (?P<measure>\b\d+(?:[.,]\d+)*\s?(?:{_UNITS})(?!\w))
    | (?P<weekday>\b(?:mon|tues|wednes|thurs|fri|satur|sun)day(?:'s|s)?\b)
    | (?P<number>(?<!\w)[-\u2212]?\d+(?:[.,:/-]\d+)*(?:st|nd|rd|th)?\b)
    | (?P<month>\b(?:{MONTH_PATTERN})\b(?:\s\d{{4}}\b)?)
    | (?P<word>[^\W\d_][\w]*(?:[-'][\w]+)*[+#]*)
    | (?P<stop>[,;:])
    """
_CURRENCY = {
    "€": "eur", "euro": "eur", "$": "usd", "dollar": "usd", "£": "gbp", "pound": "gbp",
    "franc": "chf",
}  # fmt: skip
ARTICLES = word_set("a an the my your his her its our their this that these those no")
_BEFORE_YEARS = frozenset({"in", "since", "until", "till", "by", "from", "year", "of"})


@dataclass(frozen=True, slots=True)
class TextToken:
    """A word, or a value such as a date, with the form in which it is compared."""

    kind: str
    """`word`, `name`, or a kind of value: `date`, `time`, `money`, `number` …"""
    key: str
    text: str


def tokens(text: str) -> list[TextToken]:
    """Return words, names and values of a sentence."""
    result: list[TextToken] = []
    for match in _value_pattern().finditer(text):
        kind = match.lastgroup or "word"
        part = match[0].strip()
        if kind == "word":
            result.append(_word(part, result))
        elif kind in {"date", "iso", "month"}:
            result.extend(_date(kind, part))
        elif kind == "number":
            result.append(_number(part, result))
        elif kind == "stop":
            result.append(TextToken("stop", part, part))
        else:
            result.append(_value(kind, part))
    return result


@cache
def _value_pattern() -> re.Pattern[str]:
    return re.compile(_VALUE, re.VERBOSE | re.IGNORECASE)


def _word(text: str, before: list[TextToken]) -> TextToken:
    lower = text.lower().replace("-", "")
    if lower in NUMBERS:
        return replace(_number(NUMBERS[lower], before), text=text)
    named = text[0].isupper() and (bool(before) or lower not in _COMMON)
    if named and lower != "i":
        return TextToken("name", lower.removesuffix("'s"), text)
    return TextToken("word", lower, text)


def _number(text: str, before: list[TextToken]) -> TextToken:
    plain = re.sub(r"(?:st|nd|rd|th)$", "", text.lower())
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", plain)
    last = before[-1].key if before else ""
    if re.fullmatch(r"(?:19|20)\d\d", plain) and last in _BEFORE_YEARS:
        return TextToken("year", plain, text)
    if last == "at" and re.fullmatch(r"\d{1,2}", plain) and int(plain) < 25:
        return TextToken("time", f"{int(plain):02}:00", text)
    return TextToken("number", plain, text)


def _date(kind: str, text: str) -> list[TextToken]:
    lower = text.lower()
    if kind == "iso":
        year, month, day = lower.split("-")
        return [TextToken("date", f"{month}-{day}", text), TextToken("year", year, year)]
    name = re.search(MONTH_PATTERN, lower)
    month = MONTH_NUMBERS[name[0]] if name else 0
    numbers = re.findall(r"\d+", lower)
    years = [number for number in numbers if len(number) == 4]
    days = [digits for digits in numbers if len(digits) < 3]
    result = (
        [TextToken("date", f"{month:02}-{int(days[0]):02}", text)]
        if days
        else [TextToken("month", f"{month:02}", text)]
    )
    return [*result, *(TextToken("year", digits, digits) for digits in years)]


def _value(kind: str, text: str) -> TextToken:
    lower = text.lower()
    if kind == "time":
        hours, minutes = re.findall(r"\d+", lower)[:1], re.findall(r"\d+", lower)[1:2]
        hour = int(hours[0]) % 12 if "m" in lower else int(hours[0])
        hour += 12 if "p" in lower else 0
        return TextToken(kind, f"{hour:02}:{minutes[0] if minutes else '00'}", text)
    if kind == "money":
        unit = re.sub(r"[\d.,\s]", "", lower)
        unit = _CURRENCY.get(unit.removesuffix("s"), unit)
        amount = re.sub(r"[,.](?=\d{3}\b)|[^\d.,]", "", lower).rstrip(".,")
        return TextToken(kind, f"{amount} {unit}", text)
    if kind == "phone":
        return TextToken(kind, re.sub(r"\D", "", lower), text)
    if kind == "weekday":
        return TextToken(kind, lower.removesuffix("s").removesuffix("'"), text)
    if kind == "measure":
        match = re.match(r"([\d.,]+)\s?(.*)", lower)
        amount, unit = (match[1], match[2]) if match else (lower, "")
        unit = {"kilogram": "kg", "kilo": "kg"}.get(unit.removesuffix("s"), unit)
        return TextToken(f"measure {unit.removesuffix('s')}", amount.replace(",", ""), text)
    return TextToken(kind, lower.rstrip("/."), text)


_COMMON = frozenset(
    {*VERBS, *LINKS, *FILLERS, *CONDITIONS, *ARTICLES}
    | {*MODALS, *AUXILIARIES, *PRONOUNS, *SINGLE, *MANY}
    | {"i", "we", "you", "there", "all", "nobody", "everybody", "everyone", "user", "tickets"}
)


_MAX_CHARACTERS = 4_000
_MAX_STATEMENTS = 24
_SENTENCE = re.compile(
    r"(?<=[.!?;])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\bSt\.)(?<!str\.)(?<!\b[A-Z]\.)\s+"
    r"|\n+|;\s*|(?<=[。！？])"
)
_CLAUSE = re.compile(
    r",?\s*\b(?:and|but|because|since|while|so|although)\s+(?=(?:he|she|it|they|we|I)\b)"
    r"|,\s*(?=(?:he|she|it|they|we|I|who|which)\s)"
)
_LABEL = re.compile(r"^([^\W\d_][^:.!?]{1,50}):\s+(?=\S)")
_OWNERS = {"my": "i", "our": "we", "me": "i", "us": "we", "your": "you"}


@dataclass(frozen=True)
class Statement:
    """Something said of somebody or something."""

    subject: tuple[str, ...]
    text: str
    verb: str
    rest: tuple[TextToken, ...]
    """The tokens after the verb, without fillers and articles."""
    denied: bool = False
    ended: bool = False
    """Held once and no longer: it says nothing about what holds instead."""
    past: bool = False
    modal: str = ""
    several: bool = False
    """Its subject is a plural."""

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that carry meaning, without names and values."""
        return frozenset(
            token.key for token in self.rest if token.kind == "word" and token.key not in LINKS
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """The names."""
        return frozenset(token.key for token in self.rest if token.kind == "name")

    @cached_property
    def values(self) -> dict[str, frozenset[str]]:
        """The values by kind."""
        parsed: dict[str, set[str]] = {}
        for token in self.rest:
            if token.kind not in {"word", "name"}:
                parsed.setdefault(token.kind, set()).add(token.key)
        return {kind: frozenset(keys) for kind, keys in parsed.items()}

    @cached_property
    def content(self) -> frozenset[str]:
        """Everything that is compared."""
        return frozenset(
            token.key for token in self.rest if token.kind != "word" or token.key not in LINKS
        )

    def after(self, links: tuple[str, ...]) -> tuple[TextToken, ...]:
        """Return what follows the first of some words such as `in`, up to the next such word."""
        parsed: list[TextToken] = []
        taking = False
        for token in self.rest:
            if token.kind == "word" and token.key in LINKS:
                if taking:
                    break
                taking = token.key in links
            elif taking:
                parsed.append(token)
        return tuple(parsed)

    def show(self) -> str:
        """Return what follows the verb, as it was written."""
        return " ".join(token.text for token in self.rest) or "yes"


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The statements of a text, and its sentences without a statement."""

    statements: tuple[Statement, ...]
    loose: tuple[str, ...]


@lru_cache(maxsize=512)
def parse_text(text: str) -> ParsedText:
    """Return what a text says, as far as the rules see it; questions say nothing."""
    parsed: list[Statement] = []
    loose: list[str] = []
    plain = " ".join(unicodedata.normalize("NFKC", text[:_MAX_CHARACTERS]).split(" "))
    for sentence in _SENTENCE.split(plain):
        if not sentence.strip():
            continue
        if sentence.rstrip().endswith(("?", "？")) or len(parsed) >= _MAX_STATEMENTS:
            loose.append(sentence)
            continue
        subject = parsed[-1] if parsed else None
        for clause in _clauses(_rephrase(sentence)):
            made = _parse_clause(tokens(clause), subject)
            if not made:
                loose.append(clause)
            for statement in made:
                parsed.append(_normalize_roles(statement))
                subject = statement
    return ParsedText(tuple(parsed), tuple(loose))


def _rephrase(sentence: str) -> str:
    for pattern, replacement in phrases():
        sentence = pattern.sub(replacement, sentence)
    return sentence.strip()


def _clauses(sentence: str) -> list[str]:
    """Cut a sentence into parts with a subject of their own; "Deadline: 5 May" is a sentence."""
    label = _LABEL.match(sentence)
    parts = [sentence]
    if label and _verb_at(tokens(label[1])) is None:
        parts = [f"{label[1]} is {sentence[label.end() :]}"]
    elif label:
        parts = [label[1], sentence[label.end() :]]
    return [clause for part in parts for clause in _CLAUSE.split(part)]


# -- from tokens to statements ---------------------------------------------------------------------


def _parse_clause(parsed: list[TextToken], before: Statement | None) -> list[Statement]:
    parsed = _leading_time_last(parsed)
    if any(token.key in CONDITIONS for token in parsed[:2]):
        return []
    at = _verb_at(parsed)
    if at is None:
        return []
    first, *more = _predicates(parsed[at:])
    made = [_statement(parsed[:at], first, before)]
    # "opens at 6 and closes at 11": the second verb has the subject of the first.
    made.extend(_statement([], predicate, made[0]) for predicate in more if made[0])
    return [replace(statement, rest=_tidy(statement.rest)) for statement in made if statement]


def _predicates(parsed: list[TextToken]) -> list[list[TextToken]]:
    parts: list[list[TextToken]] = [[]]
    for place, token in enumerate(parsed):
        after = parsed[place + 1] if place + 1 < len(parsed) else None
        joins = token.kind == "word" and token.key in {"and", "but"}
        if place and joins and after and _is_verb(after) and not after.key.endswith("ing"):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _leading_time_last(parsed: list[TextToken]) -> list[TextToken]:
    """Put "On Fridays" from the start of a sentence to its end."""
    if len(parsed) > 3 and parsed[0].key in {"on", "in", "at", "since", "every"}:
        end = 1
        while end < len(parsed) and parsed[end].kind in {*TIMES, "stop"}:
            end += 1
        if end > 1:
            return [*parsed[end:], *(token for token in parsed[:end] if token.kind != "stop")]
    return parsed


def _is_verb(token: TextToken) -> bool:
    key = token.key
    return (token.kind == "word" or token.text.istitle()) and (
        key in VERBS or key in AUXILIARIES or key in MODALS or key == "ended"
    )


def _verb_at(parsed: list[TextToken]) -> int | None:
    for place, token in enumerate(parsed[:14]):
        if token.kind == "stop" and place > 8:
            return None
        if not _is_verb(token):
            continue
        previous = parsed[place - 1] if place else None
        if previous is None:
            if token.key in AUXILIARIES or token.key in MODALS or token.key == "last":
                return None
            return 0
        sure = token.key in AUXILIARIES or token.key in MODALS or token.key == "ended"
        if sure or (
            _agrees(token.key, parsed[:place])
            and previous.key not in ARTICLES
            and not previous.text.endswith("'s")
            and not token.key.endswith("ing")
            and previous.key not in LINKS
            and not _verb_follows(parsed, place)
        ):
            return place
    # "Mia zips her coat": an unknown verb in the third person, after a name or a pronoun.
    if (
        len(parsed) > 1
        and parsed[1].kind == "word"
        and re.fullmatch(r"[a-z]{2,}(?:s|ed)", parsed[1].key)
        and (parsed[0].kind == "name" or parsed[0].key in PRONOUNS)
        and not parsed[1].key.endswith("ss")
    ):
        return 1
    return None


def _agrees(key: str, subject: list[TextToken]) -> bool:
    """Tell whether a verb in this form can follow a subject: "the test" is none of it."""
    if VERBS.get(key) != key or key in SAME_PAST:
        return True
    keys = [token.key for token in subject if token.key not in FILLERS]
    last = keys[-1] if keys else ""
    return (
        "and" in keys
        or last in {"i", "we", "you", "they", "who", "people", "children", "everybody"}
        or singular(last) != last
        or subject[-1].key in NEGATIONS
    )


def _verb_follows(parsed: list[TextToken], place: int) -> bool:
    """Tell whether what looks like a verb is a noun, since a sure verb comes right after it."""
    after = parsed[place + 1] if place + 1 < len(parsed) else None
    return after is not None and (
        after.key in AUXILIARIES or after.key in MODALS or after.key == "ended"
    )


@dataclass(slots=True)
class _Predicate:
    """A verb and the tokens after it, as they are read."""

    verb: str = ""
    rest: list[TextToken] = field(default_factory=list[TextToken])
    denied: bool = False
    ended: bool = False
    past: bool = False
    modal: str = ""
    paused: bool = False
    excepted: bool = False

    def take(self, token: TextToken) -> None:
        key = token.key if token.kind == "word" or not self.verb else ""
        # "wants tea, not coffee" denies the end of it only.
        if self.excepted or (self.paused and key in NEGATIONS):
            self.excepted = True
            self.rest.append(replace(token, key=f"not {token.key}"))
            return
        self.paused = token.kind == "stop" or key in {"but", "and"}
        if key == "ended":
            self.denied = self.ended = True
        elif key in NEGATIONS:
            self.denied = not self.denied
        elif not self.verb and key in MODALS:
            self.modal = MODALS[key] or self.modal
        elif key == "been" or (self.verb in {"", "do"} and key in AUXILIARIES):
            self.verb, self.past = AUXILIARIES[key], key in {"was", "were", "had"}
        elif self.is_main(key):
            self.past = key in PAST or (self.past and self.verb != "have")
            self.verb = VERBS[key]
        elif key == "born" and self.verb == "be":
            self.verb = "bear"
        elif not self.verb and token.kind == "word":
            self.verb, self.past = singular(key), key.endswith("ed")
        else:
            self.rest.append(token)

    def is_main(self, key: str) -> bool:
        """Tell whether a verb takes the place of an auxiliary: "does like", "is learning"."""
        if key not in VERBS or any(token.kind != "word" for token in self.rest):
            return False
        if self.rest:
            return self.verb in {"", "do"}
        return (
            self.verb in {"", "do"}
            or (self.verb == "be" and key.endswith("ing"))
            or (self.verb == "have" and key in PAST)
        )


def _statement(
    subject: list[TextToken], predicate: list[TextToken], before: Statement | None
) -> Statement | None:
    parsed = _Predicate()
    for token in predicate:
        parsed.take(token)
    if not parsed.verb:
        return None
    verb, denied = parsed.verb, parsed.denied
    if verb in OPPOSITE_VERBS:
        verb, denied = OPPOSITE_VERBS[verb], not denied
    if not subject and before is not None:
        key, text, several = before.subject, before.text, before.several
    else:
        key, text, several, nobody = _subject(subject, before)
        denied ^= nobody
    past = parsed.past and not parsed.ended
    rest = tuple(parsed.rest)
    return Statement(key, text, verb, rest, denied, parsed.ended, past, parsed.modal, several)


def _subject(
    parsed: list[TextToken], before: Statement | None
) -> tuple[tuple[str, ...], str, bool, bool]:
    text = " ".join(token.text for token in parsed)
    if len(parsed) == 1 and parsed[0].key in PRONOUNS and before is not None:
        return before.subject, before.text, before.several, False
    nobody = bool(parsed) and parsed[0].key in {"nobody", "none"}
    keys: list[str] = []
    for token in parsed:
        key = token.key.removesuffix("'s")
        key = "everybody" if key in {"nobody", "none", "everyone", "all"} else key
        if (
            token.kind == "stop"
            or key in {"new", "current", "latest"}
            or key in FILLERS
            or key in {"of", "on", "at", "and", "'s"}
        ):
            continue
        keys.append(_OWNERS.get(key, singular(key)))
    several = (
        bool(parsed) and parsed[-1].kind == "word" and singular(parsed[-1].key) != parsed[-1].key
    )
    return tuple(sorted(keys)), text, several or "and" in (token.key for token in parsed), nobody


def _tidy(rest: tuple[TextToken, ...]) -> tuple[TextToken, ...]:
    """Drop empty words, and turn the others into the singular."""
    result: list[TextToken] = []
    for token in rest:
        if token.kind == "stop" or (token.kind == "word" and token.key in FILLERS):
            continue
        if token.kind == "word" and token.key in {"and", "or", "me", "that", "of", "'s"}:
            continue
        key = token.key.removesuffix("'s")
        result.append(replace(token, key=singular(key) if token.kind == "word" else key))
    return tuple(result)


def _normalize_roles(statement: Statement) -> Statement:
    """Bring statements about names and roles into one form: "Dana is Tom's boss" is Tom's boss."""
    rest = statement.rest
    if statement.verb == "call" and not statement.subject and rest:
        return replace(statement, subject=("i", "name"), text="your name", verb="be")
    if statement.verb == "be" and rest and rest[0].key == "named":
        subject = tuple(sorted((*statement.subject, "name")))
        return replace(statement, subject=subject, rest=rest[1:])
    if statement.verb == "be" and len(rest) == 1 and rest[0].key in {"on", "off"}:
        return replace(statement, rest=(TextToken("word", "on|off", rest[0].text),),
                       denied=statement.denied ^ (rest[0].key == "off"))  # fmt: skip
    roles = [token for token in rest if token.key in SINGLE or token.key in MANY]
    if (
        statement.verb == "be"
        and len(rest) == 2
        and len(roles) == 1
        and len(statement.subject) == 1
        and statement.text[:1].isupper()
        and statement.subject[0] not in {"i", "we", "you"}
        and all(token.kind == "name" or token.key in {*_OWNERS} or token in roles for token in rest)
    ):
        keys = tuple(sorted(_OWNERS.get(token.key, token.key) for token in rest))
        text = " ".join(token.text for token in rest)
        value = TextToken("name", statement.subject[0], statement.text)
        return replace(statement, subject=keys, text=text, rest=(value,))
    return statement


# -- two texts compared ----------------------------------------------------------------------------

_OWNED = frozenset({"his", "her", "their", "my", "our", "your"})
_ASKS = {"in": "where", "at": "where", "for": "whom", "as": "as what", "from": "from where"}


def contradiction(ours: ParsedText, theirs: ParsedText) -> str:
    """Return in words why two texts cannot both hold; empty if they can."""
    for new in ours.statements:
        for old in theirs.statements:
            reason = _conflict(new, old) if new.subject == old.subject else ""
            if not reason and _swapped(new, old):
                reason = f"each says the reverse of the other: {new.show()}"
            if reason:
                return reason
    return ""


def covers(whole: ParsedText, part: ParsedText, text: str) -> bool:
    """Tell whether a text says all that another one does, its unread sentences word by word."""
    if not part.statements:
        return False
    if not all(
        any(_within(statement, other) for other in whole.statements)
        for statement in part.statements
    ):
        return False
    return all(contains_run(plain_words(sentence), plain_words(text)) for sentence in part.loose)


def plain_words(text: str) -> list[str]:
    """Return the words of a text, folded, without fillers."""
    return [token for token in map(singular, words(text)) if token not in FILLERS]


def contains_run(few: list[str], many: list[str]) -> bool:
    """Tell whether two words or more come in another list, one right after the other."""
    length = len(few)
    if length < 2 or few == many:
        return few == many
    return any(few == many[at : at + length] for at in range(len(many) - length + 1))


def subject_of(statement: Statement) -> str:
    """Return what a claim is about, as it was written."""
    return statement.text or "it"


def _within(new: Statement, old: Statement) -> bool:
    """Tell whether a claim says nothing that another does not."""
    return (
        new.subject == old.subject
        and new.verb == old.verb
        and (new.denied, new.modal, new.past) == (old.denied, old.modal, old.past)
        and new.content <= old.content
        and (bool(new.content) or not old.content or new.verb not in {"be", "have"})
        and _order(new) == _order(old, among=set(_order(new)))
    )


def _order(statement: Statement, among: set[str] | None = None) -> list[str]:
    """Return the words around `than`, `to` and the like, where the order counts."""
    if not any(token.key in {"than", "over"} for token in statement.rest):
        return []
    return [token.key for token in statement.rest if among is None or token.key in among]


def _conflict(new: Statement, old: Statement) -> str:
    """Return in words why two statements about one subject cannot both hold; empty if they can."""
    if new.verb != old.verb:
        return _ended(new, old) or _ended(old, new) or _diet(new, old)
    if new.modal != old.modal or new.past != old.past:
        return ""
    a, b = _flipped(new), _flipped(old)
    if a.denied != b.denied:
        no, yes = (a, b) if a.denied else (b, a)
        bare = not no.content and bool(yes.content)
        if no.content <= yes.content and not bare:
            return (
                f"one says of {subject_of(new)} what the other denies: {new.show()}, {old.show()}"
            )
        return ""
    if new.denied or old.denied:
        return ""
    return _other_value(new, old)


def _flipped(statement: Statement) -> Statement:
    """Turn words such as `closed` into the negation of their opposite."""
    hits = [token for token in statement.rest if token.kind == "word" and token.key in OPPOSITES]
    if not hits:
        return statement
    rest = tuple(
        TextToken("word", OPPOSITES[token.key], token.text) if token in hits else token
        for token in statement.rest
    )
    return replace(statement, rest=rest, denied=statement.denied ^ (len(hits) % 2 == 1))


def _ended(new: Statement, old: Statement) -> str:
    """Find "left Acme" against "works for Acme", "is retired" against "works"."""
    if old.past or old.denied or new.denied or new.modal or old.modal:
        return ""
    retired = new.verb == "be" and {"retired", "unemployed"} & new.words and old.verb == "work"
    lost = new.names or new.words - _OWNED
    over = old.verb in ENDING_VERBS.get(new.verb, ()) and lost and lost <= old.content
    if not retired and not over:
        return ""
    phrases = f"{new.verb} {new.show()}", f"{old.verb} {old.show()}"
    return (
        f"after the one the other no longer holds of {subject_of(new)}: {phrases[0]}, {phrases[1]}"
    )


def _diet(new: Statement, old: Statement) -> str:
    for a, b in ((new, old), (old, new)):
        meatless = {"vegan", "vegetarian"} & a.words
        eats = b.verb == "eat" and "meat" in b.words
        if a.verb == "be" and meatless and eats and a.denied == b.denied:
            return f"both say what {subject_of(a)} eats: {a.show()}, {b.show()}"
    return ""


def _other_value(new: Statement, old: Statement) -> str:
    """Find what can have one value at a time and has two."""
    if not new.subject or (new.past and new.verb not in {"be", "bear"}):
        return ""
    by_group = _groups(new, old)
    if by_group:
        return by_group
    if new.verb == "be" and set(new.subject) & SINGLE and not new.several:
        return _other_single(new, old)
    return _other_amount(new, old) or _other_place(new, old) or _being(new, old)


def _other_single(new: Statement, old: Statement) -> str:
    a, b = (
        {**statement.values, "name": statement.names, "word": statement.words}
        for statement in (new, old)
    )
    if not set(new.subject) & WORDED:
        del a["word"]
    for kind in a.keys() & b.keys():
        if not _contained(a[kind], b[kind]):
            return f"both say what {subject_of(new)} is: {old.show()}, {new.show()}"
    return ""


def _contained(a: frozenset[str], b: frozenset[str]) -> bool:
    return a <= b or b <= a


def _groups(new: Statement, old: Statement) -> str:
    if new.verb != "be":
        return ""
    a, b = ({GROUPS[w]: w for w in c.words if w in GROUPS} for c in (new, old))
    for group in a.keys() & b.keys():
        if a[group] != b[group]:
            return f"both say what {subject_of(new)} is: {b[group]}, {a[group]}"
    return ""


def _other_amount(new: Statement, old: Statement) -> str:
    """Compare numbers, dates, times and the like, where all else agrees."""
    a, b = new.values, old.values
    shared = a.keys() & b.keys()
    different = [kind for kind in shared if not _contained(a[kind], b[kind])]
    if len(different) != 1 or not _contained(new.words, old.words):
        return ""
    kind = different[0]
    if new.names and old.names and not _contained(new.names, old.names):
        return ""
    if new.verb not in MEASURED and kind == "number":
        return ""
    if new.verb in HABITS and not (kind == "number" or kind.startswith("measure")):
        return ""
    if new.verb == "have" and new.words != old.words:
        return ""
    if kind in TIMES:
        detail = f"{_written(old, kind)}, {_written(new, kind)}"
        return f"both say when {subject_of(new)} {_third_person(new.verb)}: {detail}"
    detail = f"{old.show()}, {new.show()}"
    return f"both say how much {subject_of(new)} {_third_person(new.verb)}: {detail}"


def _written(statement: Statement, kind: str) -> str:
    return " ".join(token.text for token in statement.rest if token.kind == kind)


def _third_person(verb: str) -> str:
    irregular = {"be": "is", "have": "has", "bear": "was born", "do": "does", "go": "goes"}
    return irregular.get(verb, verb + "s")


def _other_place(new: Statement, old: Statement) -> str:
    """Compare places and names after verbs that hold of one at a time."""
    for link in SINGLE_PLACE.get(new.verb, ()):
        a, b = new.after((link,)), old.after((link,))
        if a and b and _exclude(a, b):
            detail = f"{_ASKS.get(link, link)} {subject_of(new)} {_third_person(new.verb)}"
            detail += " for" if link == "for" else ""
            return f"both say {detail}: {_join(b)}, {_join(a)}"
    return ""


def _being(new: Statement, old: Statement) -> str:
    """Compare where, who or by whom something is."""
    if new.verb != "be" or new.past or not new.rest or not old.rest:
        return ""
    first, second = new.rest[0], old.rest[0]
    a, b = new.after(("by",)), old.after(("by",))
    if a and b and first.key == second.key and first.key in PASSIVES:
        detail = f"by whom {subject_of(new)} is {first.text}: {_join(b)}, {_join(a)}"
        return f"both say {detail}" if _exclude(a, b) else ""
    detail = f"{old.show()}, {new.show()}"
    done = first.key.endswith(("ed", "en")) and first.key not in EVERYWHERE
    if done and first.key == second.key and len(new.rest) > 1 and len(old.rest) > 1:
        link = new.rest[1].key
        a, b = new.after((link,)), old.after((link,))
        apart = link in {"in", "at", "on"} and link == old.rest[1].key and a and b
        return f"both say where {subject_of(new)} is: {detail}" if apart and _exclude(a, b) else ""
    if first.key in PLACES and second.key in PLACES:
        a, b = new.after((first.key,)), old.after((second.key,))
        plain = all(
            each and each[0].kind in {"word", "name"} and each[0].key not in NO_PLACES
            for each in (a, b)
        )
        # "I am on the hunt": of those who speak, this is seldom a place.
        speaks = new.subject in {("i",), ("we",), ("you",)}
        apart = plain and not speaks and _exclude(a, b)
        return f"both say where {subject_of(new)} is: {detail}" if apart else ""
    all_names = all(token.kind == "name" for token in (*new.rest, *old.rest))
    role = not new.several and len(new.subject) > 1 and not set(new.subject) & MANY
    if all_names and role and not _contained(new.names, old.names):
        return f"both say who {subject_of(new)} is: {detail}"
    return ""


def _exclude(a: tuple[TextToken, ...], b: tuple[TextToken, ...]) -> bool:
    """Tell whether two places or names are different ones of the same kind."""
    if a[0].kind != b[0].kind:
        return False
    mine, theirs = (frozenset(token.key for token in each) for each in (a, b))
    wide = bool(mine & WIDE), bool(theirs & WIDE)
    return not mine & theirs and wide[0] == wide[1]


def _join(parts: tuple[TextToken, ...]) -> str:
    return " ".join(token.text for token in parts)


def _swapped(new: Statement, old: Statement) -> bool:
    """Find "A is taller than B" against "B is taller than A", "prefers A to B" against "B to A"."""
    if new.verb != old.verb or new.denied or old.denied:
        return False
    if new.verb == "prefer" and new.subject == old.subject:
        a, b = ([t.key for t in c.rest if t.key not in {"to", "over"}] for c in (new, old))
        joined = any(t.key in {"to", "over"} for t in new.rest)
        return joined and len(a) > 1 and a != b and a == b[::-1]
    mine, yours = new.after(("than",)), old.after(("than",))
    return (
        bool(mine and yours)
        and new.rest[0].key == old.rest[0].key
        and tuple(sorted(t.key for t in mine)) == old.subject
        and tuple(sorted(t.key for t in yours)) == new.subject
        and new.subject != old.subject
    )
