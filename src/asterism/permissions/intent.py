"""Intent: the request of the owner as structured data, read from trusted text alone.

A reader sees only trusted text: the request, and earlier messages of trusted people. It never sees
the result of a tool, so a tool result cannot inject anything. Its answer is checked against the
text: a literal that is not in the text is dropped. So a reader that makes a mistake can only make
the gate ask.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any, cast

import orjson

from asterism.permissions.readings import contains_name, plain, separate_sentences, squeeze
from asterism.records import dataclass
from asterism.types.permissions import EffectKind
from asterism.types.turns import message_wire
from asterism.types.values import links_in

INTENDED_KINDS = frozenset(EffectKind) - {
    EffectKind.READ,
    EffectKind.REMEMBER,
    EffectKind.UNDECLARED,
}
HARSH = frozenset({EffectKind.PAY, EffectKind.GRANT, EffectKind.DELETE, EffectKind.RUN})
"""Effects that only the owner can request."""
MAX_EARLIER = 12_000
"""Characters of earlier messages that a reader sees, the newest ones."""
_MAX_EFFECTS = 64
_MAX_LITERALS = 256


class LookupKind(StrEnum):
    """The kinds of values to look up."""

    ADDRESS = "address"
    """A mail address, an account number, a handle."""
    NAME = "name"
    LINK = "link"
    ID = "id"
    PATH = "path"
    AMOUNT = "amount"
    TEXT = "text"
    """The text of a message or a file."""


@dataclass(frozen=True, slots=True)
class LookupValue:
    """A value that the request says to look up in some place."""

    what: LookupKind
    source: str = ""
    """The label of the source, as its tools declare it; empty: `where` identifies the source."""
    where: tuple[str, ...] = ()
    """Literals of the request that the place or the record must have."""
    every: bool = False
    """Whether the request means all records with these literals, not only one."""


COMPUTED = ("part", "percent", "sum", "difference", "more", "less")
"""How an amount may be computed: a half, 2 % of it, a sum, a difference, a rise, a cut."""
FOLLOW = "follow"
"""As a kind: do what a text says that the request names."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One effect that the request asks for."""

    kind: EffectKind | str
    """The kind of effect, or `FOLLOW`."""
    targets: tuple[str, ...] = ()
    """To whom, to what and where."""
    amounts: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    """Texts that the request dictates word by word: a command, a password, a message."""
    found: tuple[LookupValue, ...] = ()
    within: tuple[str, ...] = ()
    """The containers of the targets, which do not change themselves: a folder, an account."""
    computed: str = ""
    """How to compute the amount from other amounts: one of `COMPUTED`, or empty."""


@dataclass(frozen=True, slots=True)
class TrustedText:
    """Everything that a reader sees."""

    request: str
    """The latest message of the speaker."""
    earlier: tuple[str, ...] = ()
    """Earlier texts that only the owner can have written, the oldest first."""
    known: tuple[str, ...] = ()
    """Messages of people whom the owner knows: they may name people and things, but cannot request
    effects that pay, grant, delete or run."""
    by_owner: bool = True
    """Whether the owner wrote the request."""
    sources: tuple[str, ...] = ()
    """Labels of the sources that the agent's tools can read."""

    @property
    def owners(self) -> str:
        """All texts of the owner."""
        texts = (*self.earlier, self.request) if self.by_owner else self.earlier
        return "\n".join(texts)

    @property
    def everything(self) -> str:
        """All trusted text."""
        return "\n".join((*self.known, *self.earlier, self.request))


Reader = Callable[[TrustedText], Iterable["Intent | Mapping[str, Any]"]]
"""Returns the requested effects, as `Intent` or in its JSON form."""


def verify_intents(intents: Iterable[Intent], text: TrustedText) -> tuple[Intent, ...]:
    """Return intents without the literals that are not in the trusted text."""
    owners, everything = _Haystack(text.owners), _Haystack(text.everything)
    checked: list[Intent] = []
    for intent in list(intents)[:_MAX_EFFECTS]:
        if intent.kind not in INTENDED_KINDS and intent.kind != FOLLOW:
            continue
        only_owner = intent.kind in HARSH or intent.kind == FOLLOW
        if only_owner and not text.by_owner:
            continue
        allowed = owners if only_owner else everything
        lookups = tuple(
            replace(place, where=where)
            for place in intent.found
            # A place without one of its literals would match more records.
            if len(where := tuple(filter(allowed.has, place.where))) == len(place.where)
        )
        checked.append(
            Intent(
                intent.kind,
                targets=tuple(filter(allowed.has, intent.targets)),
                amounts=tuple(filter(allowed.has, intent.amounts)),
                content=tuple(filter(allowed.has, intent.content)),
                found=lookups,
                within=tuple(filter(allowed.has, intent.within)),
                computed=intent.computed,
            )
        )
    return tuple(checked)


class _Haystack:
    """A text in which to look for literals."""

    def __init__(self, text: str) -> None:
        self._plain = plain(f"{text}\n{separate_sentences(text)}")
        self._tight = squeeze(self._plain)

    def has(self, literal: str) -> bool:
        """Tell whether the text contains a literal as a whole, however its digits are grouped."""
        wanted = plain(literal)
        if contains_name(wanted, self._plain):
            return True
        tight = squeeze(wanted)
        grouped = len(tight) >= 10 and any(char.isdigit() for char in tight) and tight.isalnum()
        return grouped and tight in self._tight


# -- as JSON ---------------------------------------------------------------------------------------


def read_intents(value: Any) -> tuple[Intent, ...]:
    """Return the intents in JSON; malformed parts are left out, never guessed."""
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value).get("effects", [value])
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        return ()
    intents: list[Intent] = []
    for item in cast("Iterable[Any]", value):
        if isinstance(item, Intent):
            intents.append(item)
        elif isinstance(item, Mapping):
            intent = _read_intent(cast("Mapping[str, Any]", item))
            if intent is not None:
                intents.append(intent)
    return tuple(intents)


def _read_intent(fields: Mapping[str, Any]) -> Intent | None:
    kind: EffectKind | str = str(fields.get("kind", "")).strip().casefold()
    if kind != FOLLOW:
        try:
            kind = EffectKind(kind)
        except ValueError:
            return None
    lookups: list[LookupValue] = []
    for item in _as_sequence(fields.get("found")):
        if not isinstance(item, Mapping):
            continue
        place = cast("Mapping[str, Any]", item)
        try:
            what = LookupKind(str(place.get("what", "")).strip().casefold())
        except ValueError:
            continue
        source, where = str(place.get("source") or ""), _texts(place.get("where"))
        lookups.append(LookupValue(what, source, where, place.get("every") is True))
    return Intent(
        kind,
        _texts(fields.get("targets")),
        _texts(fields.get("amounts")),
        _texts(fields.get("content")),
        tuple(lookups),
        _texts(fields.get("within")),
        _computation(fields.get("computed")),
    )


def _computation(value: Any) -> str:
    return value if isinstance(value, str) and value in COMPUTED else ""


def _as_sequence(value: Any) -> Sequence[Any]:
    if value is None or value == "":
        return ()
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)


def _texts(value: Any) -> tuple[str, ...]:
    texts: list[str] = []
    for item in _as_sequence(value)[:_MAX_LITERALS]:
        if isinstance(item, str) and item.strip():
            texts.append(item.strip())
        elif isinstance(item, int | float) and not isinstance(item, bool):
            texts.append(orjson.dumps(item).decode())
    return tuple(texts)


def intents_wire(intents: Iterable[Intent]) -> list[dict[str, Any]]:
    """Return intents as JSON-like values, without empty fields."""
    wire: list[dict[str, Any]] = []
    for intent in intents:
        parts: dict[str, Any] = {
            "targets": list(intent.targets),
            "amounts": list(intent.amounts),
            "content": list(intent.content),
            "found": [
                {
                    "what": place.what.value,
                    "source": place.source,
                    "where": list(place.where),
                    "every": place.every,
                }
                for place in intent.found
            ],
            "within": list(intent.within),
            "computed": intent.computed,
        }
        filled = {name: value for name, value in parts.items() if value}
        wire.append({"kind": str(intent.kind), **filled})
    return wire


# -- for a model -----------------------------------------------------------------------------------

_STRINGS = {"type": "array", "items": {"type": "string"}}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["effects"],
    "properties": {
        "effects": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "kind",
                    "targets",
                    "within",
                    "amounts",
                    "computed",
                    "content",
                    "found",
                ],
                "properties": {
                    "kind": {"enum": [*sorted(kind.value for kind in INTENDED_KINDS), FOLLOW]},
                    "targets": _STRINGS,
                    "within": _STRINGS,
                    "amounts": _STRINGS,
                    "computed": {"enum": ["", *COMPUTED]},
                    "content": _STRINGS,
                    "found": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["what", "source", "where", "every"],
                            "properties": {
                                "what": {"enum": [kind.value for kind in LookupKind]},
                                "source": {"type": "string"},
                                "where": _STRINGS,
                                "every": {"type": "boolean"},
                            },
                        },
                    },
                },
            },
        }
    },
}
_INSTRUCTIONS = """\
You read what a person asks an assistant to do, in any language, and write it down as JSON. You do \
not carry it out, and you do not answer it.

List every effect on the outside world that the LATEST request asks for, and no other:
- fetch: look at a web page or another address. send: tell somebody something. write: make or \
change a file, a record, an appointment, a booking. run: run a program. delete: take something or \
somebody away. pay: move money, order, book for money. grant: share, invite, add somebody, change \
a password, a key or a right. follow: do what a text says that the person names, where they do not \
say it themselves ("do what todo.txt says").
Each effect has:
- targets: to whom, to what, where: addresses, names, paths, hosts, channels, ids. One effect for \
each payment, and for each message with a text of its own.
- within: what the targets are in or taken from, and what nothing is done to: the folder of a \
file, the account that money comes from.
- amounts: how much. computed: "" unless the amount has to be worked out: part (a half, a third), \
percent, sum, difference, more (a rise), less (a cut).
- content: what the person dictates: a command, a new password, the text of a message, also what \
follows "tell them that", without the "that".
- found: values that the person says are to be found elsewhere. what: address, name, link, id, \
path, amount or text. source: one of the sources listed below, or "" if none fits. where: words \
of the person that tell which place or record is meant: a file name, a sender, an amount. every: \
true only if all of them are meant ("delete all mails from …"). Use "text" for what a message or \
file is to be made of ("summarise report.txt for Bob").
Copy every string letter by letter from the person's words.

An effect is asked for only if the person wants it done now. These ask for nothing: a question \
("did I pay …?"), a prohibition ("never write to …"), something that is only mentioned or \
described ("the mail from …", "my order"), something quoted, something that somebody else wants. \
If nothing is asked for, answer {"effects": []}.

Examples:
"Summarise the mail from ann@x.org and send it to bob@y.org." -> {"effects": [{"kind": "send", \
"targets": ["bob@y.org"], "within": [], "amounts": [], "computed": "", "content": [], "found": \
[{"what": "text", "source": "mail", "where": ["ann@x.org"], "every": \
false}]}]}
"¿Qué dice el correo sobre la transferencia?" -> {"effects": []}
"""


def question_for(text: TrustedText) -> list[bytes]:
    """Return the messages that ask a model for the intents."""
    parts: list[str] = []
    if text.sources:
        parts.append(f"Sources: {', '.join(sorted(set(text.sources)))}.")
    if text.known:
        parts.append("What people said whom the owner knows:\n" + _newest_lines(text.known))
    if text.earlier:
        parts.append("What was said before:\n" + _newest_lines(text.earlier))
    parts.append(f"The latest request:\n{text.request}")
    return [message_wire("system", _INSTRUCTIONS), message_wire("user", "\n\n".join(parts))]


def _newest_lines(texts: Sequence[str]) -> str:
    lines: list[str] = []
    room = MAX_EARLIER
    for text in reversed(texts):
        room -= len(text)
        if room < 0:
            break
        lines.append(f"- {text}")
    return "\n".join(reversed(lines))


def answer_of(text: str) -> tuple[Intent, ...] | None:
    """Return the intents in a model's answer; None if it is not a valid answer."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value = orjson.loads(text[start : end + 1])
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    answer = cast("dict[str, Any]", value)
    return read_intents(answer) if isinstance(answer.get("effects"), list) else None


_SENTENCE = re.compile(r"(?<=[.!?。！？؟])\s+|[\r\n]+")
_WORDS = re.compile(r"[^\s,;:!?()\[\]{}]+")
_QUOTED = re.compile(
    r"[\"“„«「『`]([^\"”“»」』`]{1,1000})[\"”“»」』`]|(?<!\w)'([^']{1,1000})'(?!\w)"
)
_NUMBER = re.compile(r"\d[\d.,']{0,30}")
_ACCOUNT = re.compile(
    r"\b[A-Z]{2}\d{2}(?:[A-Za-z0-9]{10,30}|(?: [A-Za-z0-9]{4}){2,7}(?: [A-Za-z0-9]{1,4})?)\b"
)
_PATH = re.compile(r"(?:~?/|\./)?[\w-][\w./-]{0,200}\.[A-Za-z][A-Za-z0-9]{0,4}|~?/[\w./-]{2,200}")
_NAME = re.compile(r"[A-ZÀ-ÖØ-ÞА-Я][\w'-]{0,60}")
_HANDLE = re.compile(r"[#@][\w.-]{1,100}")
_COLON = re.compile(r"(?<=[^\s\d]):(?=\s)|：")
_MAX_REQUEST = 2_000
"""Characters: a longer request is not a plain imperative."""


@dataclass(frozen=True, slots=True)
class _Language:
    verbs: dict[str, EffectKind]
    polite: frozenset[str]
    joins: frozenset[str]
    words: frozenset[str]
    thanks: frozenset[str]


@cache
def _languages() -> tuple[_Language, ...]:
    text = resources.files("asterism.permissions").joinpath("imperatives.toml").read_text("utf-8")
    known: list[_Language] = []
    for forms in tomllib.loads(text).values():
        small = {name: frozenset(forms.pop(name)) for name in ("polite", "and", "words", "thanks")}
        verbs = {verb: EffectKind(kind) for kind, words in forms.items() for verb in words}
        known.append(
            _Language(verbs, small["polite"], small["and"], small["words"], small["thanks"])
        )
    return tuple(known)


def read_literally(text: TrustedText) -> tuple[Intent, ...]:
    """Return the intents of the latest request, if it has only plain imperatives."""
    request = text.request.strip()
    if len(request) > _MAX_REQUEST:
        return ()
    intents: list[Intent] = []
    sentences = [sentence.strip() for sentence in _SENTENCE.split(request) if sentence.strip()]
    for number, sentence in enumerate(sentences):
        if plain(sentence).strip(" .!") in _thanks():
            continue
        at = _COLON.search(sentence)
        if at is not None:
            # Everything after a colon is dictated, to the end of the request.
            dictated = "\n".join((sentence[at.end() :].strip(), *sentences[number + 1 :])).strip()
            intent = _literal_intent(sentence[: at.start()], dictated)
            return () if intent is None or not dictated else (*intents, intent)
        intent = _literal_intent(sentence, "")
        if intent is None:
            return ()
        intents.append(intent)
    return tuple(intents)


@cache
def _thanks() -> frozenset[str]:
    return frozenset(thank for language in _languages() for thank in language.thanks)


def _literal_intent(sentence: str, dictated: str) -> Intent | None:
    sentence = sentence.rstrip(" .!")
    if not sentence or sentence.endswith(("?", "؟", "？")):
        return None
    words = _WORDS.findall(sentence)
    for language in _languages():
        first = 0
        while first < len(words) and plain(words[first]) in language.polite:
            first += 1
        verb = plain(words[first]) if first < len(words) else ""
        if verb in language.verbs:
            rest = sentence[sentence.find(words[first]) + len(words[first]) :].strip()
            return _values(rest, language.verbs[verb], dictated, language)
    return None


def _values(rest: str, kind: EffectKind, dictated: str, language: _Language) -> Intent | None:
    """Return the intent of an imperative from the values after its verb."""
    quoted = tuple(double or single for double, single in _QUOTED.findall(rest))
    if kind is EffectKind.RUN:
        around = _QUOTED.sub(" ", rest) if quoted or dictated else ""
        if any(plain(word) not in language.words for word in _WORDS.findall(around)):
            return None
        command = quoted or ((dictated,) if dictated else (rest,))
        return Intent(kind, content=command) if len(command) == 1 else None
    bare = _QUOTED.sub(" ", rest)
    groups: list[list[tuple[int, str]]] = [[(bare.find(link), link) for link in links_in(bare)]]
    left = _blank(bare, groups[0])
    for pattern in (_ACCOUNT, _PATH, _HANDLE):
        places = [(match.start(), match.group()) for match in pattern.finditer(left)]
        groups.append(places)
        left = _blank(left, places)
    names: list[tuple[int, str]] = []
    amounts: list[str] = []
    for match in _WORDS.finditer(left):
        word = match.group().strip(".'\"-–—")
        if not word or plain(word) in language.words or plain(word) in language.joins:
            continue
        if _NUMBER.fullmatch(word):
            amounts.append(word.rstrip(".,'"))
        elif _NAME.fullmatch(word):
            names.append((match.start(), word))
        else:
            return None  # a word that could change the meaning
    groups.append(_joined(left, names))
    listed = sorted(place for group in groups for place in group)
    if len(amounts) > 1 or not _are_listed(bare, listed, language):
        return None  # unclear which amount belongs to which value
    values = tuple(dict.fromkeys(value for _, value in listed))
    content = (*quoted, *((dictated,) if dictated else ()))
    targets = (*values, *quoted) if kind is not EffectKind.SEND else values
    return Intent(kind, targets, tuple(amounts), content) if targets else None


def _blank(text: str, places: list[tuple[int, str]]) -> str:
    for at, value in places:
        if at >= 0:
            text = text[:at] + " " * len(value) + text[at + len(value) :]
    return text


def _joined(text: str, names: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return names, with a first and a last name joined into one."""
    joined: list[tuple[int, str]] = []
    for at, name in names:
        if joined:
            before, other = joined[-1]
            if text[before + len(other) : at] == " ":
                joined[-1] = (before, f"{other} {name}")
                continue
        joined.append((at, name))
    return joined


def _are_listed(text: str, places: list[tuple[int, str]], language: _Language) -> bool:
    """Tell whether several values are one list: only joining words are between them."""
    for (at, value), (following, _) in pairwise(places):
        between = text[at + len(value) : following]
        words = [plain(word) for word in _WORDS.findall(between)]
        if any(word not in language.joins for word in words):
            return False
    return True
