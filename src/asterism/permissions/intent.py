"""Intent: what the owner asked for, as structure, read in a clean room.

A reader sees trusted text alone: the request, and what was said before it by people who are
trusted. No result of a tool reaches it, so that nothing can inject it. What it returns is checked
against that text: a literal that does not stand there is dropped. So a reader that errs can only
make the gate ask.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any, cast

import orjson

from asterism.permissions.readings import plain, sentences_apart, squeezed, stands_in
from asterism.types.permissions import EffectKind
from asterism.types.turns import message_wire
from asterism.types.values import links_in

INTENDED_KINDS = frozenset(EffectKind) - {
    EffectKind.READ,
    EffectKind.REMEMBER,
    EffectKind.UNDECLARED,
}
HARSH = frozenset({EffectKind.PAY, EffectKind.GRANT, EffectKind.DELETE, EffectKind.RUN})
"""What only the owner's own words can ask for."""
MAX_EARLIER = 12_000
"""Characters of what was said before the request that a reader is given, the newest."""
_MAX_EFFECTS = 64
_MAX_LITERALS = 256


class LookupKind(StrEnum):
    """What kind of value is to be found elsewhere."""

    ADDRESS = "address"
    """A mail address, an account number, a handle."""
    NAME = "name"
    LINK = "link"
    ID = "id"
    PATH = "path"
    AMOUNT = "amount"
    TEXT = "text"
    """What is told or written."""


@dataclass(frozen=True, slots=True)
class LookupValue:
    """A value that the request says is to be found somewhere."""

    what: LookupKind
    source: str = ""
    """The label of the source, as its tools declare it; empty: the one that `where` tells."""
    where: tuple[str, ...] = ()
    """Literals of the request that the place or the record must have."""
    every: bool = False
    """Whether all records are meant that have them, rather than one."""


COMPUTED = ("part", "percent", "sum", "difference", "more", "less")
"""How an amount may be worked out: a half, 2 % of it, two together, what is left, a rise, a cut."""
FOLLOW = "follow"
"""As a kind: to do what a text says that the request names."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One effect that was asked for."""

    kind: EffectKind | str
    """What shall be done, or `FOLLOW`."""
    targets: tuple[str, ...] = ()
    """To whom, to what and where."""
    amounts: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    """What the request dictates word by word: a command, a password, a message."""
    found: tuple[LookupValue, ...] = ()
    within: tuple[str, ...] = ()
    """What the targets are in or taken from, and what nothing is done to: a folder, an account."""
    computed: str = ""
    """How the amount is to be worked out from amounts; one of `COMPUTED`, or not at all."""


@dataclass(frozen=True, slots=True)
class TrustedText:
    """All that a reader sees."""

    request: str
    """The latest message of the one who speaks."""
    earlier: tuple[str, ...] = ()
    """What nobody but the owner can have said or written before it, the oldest first."""
    known: tuple[str, ...] = ()
    """What people said whom the owner knows: it names people and things, and asks for nothing
    that pays, grants, deletes or runs."""
    by_owner: bool = True
    """Whether the request is the owner's."""
    sources: tuple[str, ...] = ()
    """Labels of the sources that the agent's tools can read."""

    @property
    def owners(self) -> str:
        """What the owner has said."""
        said = (*self.earlier, self.request) if self.by_owner else self.earlier
        return "\n".join(said)

    @property
    def everything(self) -> str:
        """All of it."""
        return "\n".join((*self.known, *self.earlier, self.request))


Reader = Callable[[TrustedText], Iterable["Intent | Mapping[str, Any]"]]
"""Returns what is asked for, as `Intent` or as the same in JSON."""


def verified(intents: Iterable[Intent], text: TrustedText) -> tuple[Intent, ...]:
    """Return effects without the literals that do not stand in the text that was read."""
    owners, everything = _Haystack(text.owners), _Haystack(text.everything)
    kept: list[Intent] = []
    for intent in list(intents)[:_MAX_EFFECTS]:
        if intent.kind not in INTENDED_KINDS and intent.kind != FOLLOW:
            continue
        only_owner = intent.kind in HARSH or intent.kind == FOLLOW
        if only_owner and not text.by_owner:
            continue
        said = owners if only_owner else everything
        found = tuple(
            replace(place, where=where)
            for place in intent.found
            # A place without what tells it from others would be a wider one.
            if len(where := tuple(filter(said.has, place.where))) == len(place.where)
        )
        kept.append(
            Intent(
                intent.kind,
                targets=tuple(filter(said.has, intent.targets)),
                amounts=tuple(filter(said.has, intent.amounts)),
                content=tuple(filter(said.has, intent.content)),
                found=found,
                within=tuple(filter(said.has, intent.within)),
                computed=intent.computed,
            )
        )
    return tuple(kept)


class _Haystack:
    """A text in which literals are looked for."""

    def __init__(self, text: str) -> None:
        self._plain = plain(f"{text}\n{sentences_apart(text)}")
        self._tight = squeezed(self._plain)

    def has(self, literal: str) -> bool:
        """Tell whether a literal stands there as a whole, however its digits are grouped."""
        wanted = plain(literal)
        if stands_in(wanted, self._plain):
            return True
        tight = squeezed(wanted)
        grouped = len(tight) >= 10 and any(char.isdigit() for char in tight) and tight.isalnum()
        return grouped and tight in self._tight


# -- as JSON ---------------------------------------------------------------------------------------


def read_intents(value: Any) -> tuple[Intent, ...]:
    """Return the effects that JSON tells; what is malformed in it is left out, never guessed."""
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value).get("effects", [value])
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        return ()
    intents: list[Intent] = []
    for one in cast("Iterable[Any]", value):
        if isinstance(one, Intent):
            intents.append(one)
        elif isinstance(one, Mapping):
            intent = _intent(cast("Mapping[str, Any]", one))
            if intent is not None:
                intents.append(intent)
    return tuple(intents)


def _intent(told: Mapping[str, Any]) -> Intent | None:
    kind: EffectKind | str = str(told.get("kind", "")).strip().casefold()
    if kind != FOLLOW:
        try:
            kind = EffectKind(kind)
        except ValueError:
            return None
    found: list[LookupValue] = []
    for one in _listed(told.get("found")):
        if not isinstance(one, Mapping):
            continue
        place = cast("Mapping[str, Any]", one)
        try:
            what = LookupKind(str(place.get("what", "")).strip().casefold())
        except ValueError:
            continue
        source, where = str(place.get("source") or ""), _texts(place.get("where"))
        found.append(LookupValue(what, source, where, place.get("every") is True))
    return Intent(
        kind,
        _texts(told.get("targets")),
        _texts(told.get("amounts")),
        _texts(told.get("content")),
        tuple(found),
        _texts(told.get("within")),
        _way(told.get("computed")),
    )


def _way(value: Any) -> str:
    return value if isinstance(value, str) and value in COMPUTED else ""


def _listed(value: Any) -> Sequence[Any]:
    if value is None or value == "":
        return ()
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)


def _texts(value: Any) -> tuple[str, ...]:
    texts: list[str] = []
    for one in _listed(value)[:_MAX_LITERALS]:
        if isinstance(one, str) and one.strip():
            texts.append(one.strip())
        elif isinstance(one, int | float) and not isinstance(one, bool):
            texts.append(orjson.dumps(one).decode())
    return tuple(texts)


def intents_wire(intents: Iterable[Intent]) -> list[dict[str, Any]]:
    """Return effects as JSON-like values; what is empty is left out."""
    told: list[dict[str, Any]] = []
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
        kept = {name: value for name, value in parts.items() if value}
        told.append({"kind": str(intent.kind), **kept})
    return told


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
                                "what": {"enum": [one.value for one in LookupKind]},
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
    """Return the messages that put the question to a model."""
    parts: list[str] = []
    if text.sources:
        parts.append(f"Sources: {', '.join(sorted(set(text.sources)))}.")
    if text.known:
        parts.append("What people said whom the owner knows:\n" + _newest(text.known))
    if text.earlier:
        parts.append("What was said before:\n" + _newest(text.earlier))
    parts.append(f"The latest request:\n{text.request}")
    return [message_wire("system", _INSTRUCTIONS), message_wire("user", "\n\n".join(parts))]


def _newest(texts: Sequence[str]) -> str:
    kept: list[str] = []
    room = MAX_EARLIER
    for one in reversed(texts):
        room -= len(one)
        if room < 0:
            break
        kept.append(f"- {one}")
    return "\n".join(reversed(kept))


def answer_of(text: str) -> tuple[Intent, ...] | None:
    """Return the effects in a model's answer; None if it is none."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value = orjson.loads(text[start : end + 1])
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    told = cast("dict[str, Any]", value)
    return read_intents(told) if isinstance(told.get("effects"), list) else None


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
"""Characters: a longer request says more than a plain imperative."""


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
    """Return what the latest request asks for, if it is nothing but plain imperatives."""
    request = text.request.strip()
    if len(request) > _MAX_REQUEST:
        return ()
    found: list[Intent] = []
    sentences = [one.strip() for one in _SENTENCE.split(request) if one.strip()]
    for number, sentence in enumerate(sentences):
        if plain(sentence).strip(" .!") in _thanks():
            continue
        at = _COLON.search(sentence)
        if at is not None:
            # All that stands behind a colon is dictated, to the end of the request.
            dictated = "\n".join((sentence[at.end() :].strip(), *sentences[number + 1 :])).strip()
            intent = _literal_intent(sentence[: at.start()], dictated)
            return () if intent is None or not dictated else (*found, intent)
        intent = _literal_intent(sentence, "")
        if intent is None:
            return ()
        found.append(intent)
    return tuple(found)


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
    """Return the effect of an imperative on the values behind its verb."""
    quoted = tuple(one or other for one, other in _QUOTED.findall(rest))
    if kind is EffectKind.RUN:
        around = _QUOTED.sub(" ", rest) if quoted or dictated else ""
        if any(plain(word) not in language.words for word in _WORDS.findall(around)):
            return None
        command = quoted or ((dictated,) if dictated else (rest,))
        return Intent(kind, content=command) if len(command) == 1 else None
    bare = _QUOTED.sub(" ", rest)
    groups: list[list[tuple[int, str]]] = [[(bare.find(one), one) for one in links_in(bare)]]
    left = _blank(bare, groups[0])
    for pattern in (_ACCOUNT, _PATH, _HANDLE):
        places = [(one.start(), one.group()) for one in pattern.finditer(left)]
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
            return None  # a word that might turn the sense around
    groups.append(_joined(left, names))
    listed = sorted(place for group in groups for place in group)
    if len(amounts) > 1 or not _are_listed(bare, listed, language):
        return None  # which one is meant for what
    values = tuple(dict.fromkeys(one for _, one in listed))
    content = (*quoted, *((dictated,) if dictated else ()))
    targets = (*values, *quoted) if kind is not EffectKind.SEND else values
    return Intent(kind, targets, tuple(amounts), content) if targets else None


def _blank(text: str, places: list[tuple[int, str]]) -> str:
    for at, one in places:
        if at >= 0:
            text = text[:at] + " " * len(one) + text[at + len(one) :]
    return text


def _joined(text: str, names: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return names with those joined that are one: a first and a last name."""
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
    """Tell whether several values are plainly one list: nothing but joints stands between them."""
    for (at, one), (following, _) in pairwise(places):
        between = text[at + len(one) : following]
        words = [plain(word) for word in _WORDS.findall(between)]
        if any(word not in language.joins for word in words):
            return False
    return True
