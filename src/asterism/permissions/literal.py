"""The literal reading: what a request asks for where no capable model reads it.

It is simple rather than clever. Every sentence of the request begins with the exact imperative of
a language it knows, and holds nothing else but literal values and a few small words; what stands
behind a colon or in quotes is dictated. Any other word might turn the sense around ("…, but not",
"subject to my approval", "here is a mail:"), so that the request asks for nothing and a person is
asked.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise

from asterism.permissions.intent import Intent, TrustedText
from asterism.permissions.texts import plain
from asterism.types.effects import EffectKind
from asterism.types.values import links_in

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
            intent = _intent(sentence[: at.start()], dictated)
            return () if intent is None or not dictated else (*found, intent)
        intent = _intent(sentence, "")
        if intent is None:
            return ()
        found.append(intent)
    return tuple(found)


@cache
def _thanks() -> frozenset[str]:
    return frozenset(one for language in _languages() for one in language.thanks)


def _intent(sentence: str, dictated: str) -> Intent | None:
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
