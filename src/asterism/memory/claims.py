"""What a text says, by rule: of whom, what, and with which values; English, and no model."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from asterism.memory import lexicon
from asterism.memory.values import ARTICLES, Token, tokens
from asterism.memory.words import singular

_MOST_CHARACTERS = 4_000
_MOST_CLAIMS = 24
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
class Claim:
    """Something said of somebody or something."""

    subject: tuple[str, ...]
    shown: str
    verb: str
    rest: tuple[Token, ...]
    """What follows the verb, without fillers and articles."""
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
            one.key for one in self.rest if one.kind == "word" and one.key not in lexicon.LINKS
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """The names."""
        return frozenset(one.key for one in self.rest if one.kind == "name")

    @cached_property
    def values(self) -> dict[str, frozenset[str]]:
        """The values by kind."""
        found: dict[str, set[str]] = {}
        for one in self.rest:
            if one.kind not in {"word", "name"}:
                found.setdefault(one.kind, set()).add(one.key)
        return {kind: frozenset(keys) for kind, keys in found.items()}

    @cached_property
    def content(self) -> frozenset[str]:
        """Everything that is compared."""
        return frozenset(
            one.key for one in self.rest if one.kind != "word" or one.key not in lexicon.LINKS
        )

    def after(self, links: tuple[str, ...]) -> tuple[Token, ...]:
        """Return what follows the first of some words such as `in`, up to the next such word."""
        found: list[Token] = []
        taking = False
        for one in self.rest:
            if one.kind == "word" and one.key in lexicon.LINKS:
                if taking:
                    break
                taking = one.key in links
            elif taking:
                found.append(one)
        return tuple(found)

    def show(self) -> str:
        """Return what follows the verb, as it was written."""
        return " ".join(one.shown for one in self.rest) or "yes"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says, and those of its sentences of which the rules see no claim."""

    claims: tuple[Claim, ...]
    loose: tuple[str, ...]


@lru_cache(maxsize=512)
def read(text: str) -> Reading:
    """Return what a text says, as far as the rules see it; questions say nothing."""
    found: list[Claim] = []
    loose: list[str] = []
    plain = " ".join(unicodedata.normalize("NFKC", text[:_MOST_CHARACTERS]).split(" "))
    for sentence in _SENTENCE.split(plain):
        if not sentence.strip():
            continue
        if sentence.rstrip().endswith(("?", "？")) or len(found) >= _MOST_CLAIMS:
            loose.append(sentence)
            continue
        subject = found[-1] if found else None
        for clause in _clauses(_in_one_way(sentence)):
            made = _read(tokens(clause), subject)
            if not made:
                loose.append(clause)
            for claim in made:
                found.append(_turned(claim))
                subject = claim
    return Reading(tuple(found), tuple(loose))


def _in_one_way(sentence: str) -> str:
    for pattern, said in lexicon.phrases():
        sentence = pattern.sub(said, sentence)
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


# -- from tokens to claims ------------------------------------------------------------------------


def _read(found: list[Token], before: Claim | None) -> list[Claim]:
    found = _leading_time_last(found)
    if any(one.key in lexicon.CONDITIONS for one in found[:2]):
        return []
    at = _verb_at(found)
    if at is None:
        return []
    first, *more = _predicates(found[at:])
    made = [_claim(found[:at], first, before)]
    # "opens at 6 and closes at 11": the second verb has the subject of the first.
    made.extend(_claim([], predicate, made[0]) for predicate in more if made[0])
    return [replace(claim, rest=_tidy(claim.rest)) for claim in made if claim]


def _predicates(found: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for place, one in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        joins = one.kind == "word" and one.key in {"and", "but"}
        if place and joins and after and _is_verb(after) and not after.key.endswith("ing"):
            parts.append([])
        else:
            parts[-1].append(one)
    return [part for part in parts if part]


def _leading_time_last(found: list[Token]) -> list[Token]:
    """Put "On Fridays" from the start of a sentence to its end."""
    if len(found) > 3 and found[0].key in {"on", "in", "at", "since", "every"}:
        end = 1
        while end < len(found) and found[end].kind in {*lexicon.TIMES, "stop"}:
            end += 1
        if end > 1:
            return [*found[end:], *(one for one in found[:end] if one.kind != "stop")]
    return found


def _is_verb(token: Token) -> bool:
    key = token.key
    return (token.kind == "word" or token.shown.istitle()) and (
        key in lexicon.VERBS
        or key in lexicon.AUXILIARIES
        or key in lexicon.MODALS
        or key == "ended"
    )


def _verb_at(found: list[Token]) -> int | None:
    for place, one in enumerate(found[:14]):
        if one.kind == "stop" and place > 8:
            return None
        if not _is_verb(one):
            continue
        previous = found[place - 1] if place else None
        if previous is None:
            if one.key in lexicon.AUXILIARIES or one.key in lexicon.MODALS or one.key == "last":
                return None
            return 0
        sure = one.key in lexicon.AUXILIARIES or one.key in lexicon.MODALS or one.key == "ended"
        if sure or (
            _agrees(one.key, found[:place])
            and previous.key not in ARTICLES
            and not previous.shown.endswith("'s")
            and not one.key.endswith("ing")
            and previous.key not in lexicon.LINKS
            and not _verb_follows(found, place)
        ):
            return place
    # "Mia zips her coat": an unknown verb in the third person, after a name or a pronoun.
    if (
        len(found) > 1
        and found[1].kind == "word"
        and re.fullmatch(r"[a-z]{2,}(?:s|ed)", found[1].key)
        and (found[0].kind == "name" or found[0].key in lexicon.PRONOUNS)
        and not found[1].key.endswith("ss")
    ):
        return 1
    return None


def _agrees(key: str, subject: list[Token]) -> bool:
    """Tell whether a verb in this form can follow a subject: "the test" is none of it."""
    if lexicon.VERBS.get(key) != key or key in lexicon.SAME_PAST:
        return True
    keys = [one.key for one in subject if one.key not in lexicon.FILLERS]
    last = keys[-1] if keys else ""
    return (
        "and" in keys
        or last in {"i", "we", "you", "they", "who", "people", "children", "everybody"}
        or singular(last) != last
        or subject[-1].key in lexicon.NEGATIONS
    )


def _verb_follows(found: list[Token], place: int) -> bool:
    """Tell whether what looks like a verb is a noun, since a sure verb comes right after it."""
    after = found[place + 1] if place + 1 < len(found) else None
    return after is not None and (
        after.key in lexicon.AUXILIARIES or after.key in lexicon.MODALS or after.key == "ended"
    )


@dataclass(slots=True)
class _Predicate:
    """What is read of a verb and what follows it, token by token."""

    verb: str = ""
    rest: list[Token] = field(default_factory=list[Token])
    denied: bool = False
    ended: bool = False
    past: bool = False
    modal: str = ""
    paused: bool = False
    excepted: bool = False

    def take(self, one: Token) -> None:
        key = one.key if one.kind == "word" or not self.verb else ""
        # "wants tea, not coffee" denies the end of it only.
        if self.excepted or (self.paused and key in lexicon.NEGATIONS):
            self.excepted = True
            self.rest.append(replace(one, key=f"not {one.key}"))
            return
        self.paused = one.kind == "stop" or key in {"but", "and"}
        if key == "ended":
            self.denied = self.ended = True
        elif key in lexicon.NEGATIONS:
            self.denied = not self.denied
        elif not self.verb and key in lexicon.MODALS:
            self.modal = lexicon.MODALS[key] or self.modal
        elif key == "been" or (self.verb in {"", "do"} and key in lexicon.AUXILIARIES):
            self.verb, self.past = lexicon.AUXILIARIES[key], key in {"was", "were", "had"}
        elif self.is_main(key):
            self.past = key in lexicon.PAST or (self.past and self.verb != "have")
            self.verb = lexicon.VERBS[key]
        elif key == "born" and self.verb == "be":
            self.verb = "bear"
        elif not self.verb and one.kind == "word":
            self.verb, self.past = singular(key), key.endswith("ed")
        else:
            self.rest.append(one)

    def is_main(self, key: str) -> bool:
        """Tell whether a verb takes the place of an auxiliary: "does like", "is learning"."""
        if key not in lexicon.VERBS or any(one.kind != "word" for one in self.rest):
            return False
        if self.rest:
            return self.verb in {"", "do"}
        return (
            self.verb in {"", "do"}
            or (self.verb == "be" and key.endswith("ing"))
            or (self.verb == "have" and key in lexicon.PAST)
        )


def _claim(subject: list[Token], predicate: list[Token], before: Claim | None) -> Claim | None:
    found = _Predicate()
    for one in predicate:
        found.take(one)
    if not found.verb:
        return None
    verb, denied = found.verb, found.denied
    if verb in lexicon.FLIPPED_VERBS:
        verb, denied = lexicon.FLIPPED_VERBS[verb], not denied
    if not subject and before is not None:
        key, shown, several = before.subject, before.shown, before.several
    else:
        key, shown, several, nobody = _subject(subject, before)
        denied ^= nobody
    past = found.past and not found.ended
    rest = tuple(found.rest)
    return Claim(key, shown, verb, rest, denied, found.ended, past, found.modal, several)


def _subject(found: list[Token], before: Claim | None) -> tuple[tuple[str, ...], str, bool, bool]:
    shown = " ".join(one.shown for one in found)
    if len(found) == 1 and found[0].key in lexicon.PRONOUNS and before is not None:
        return before.subject, before.shown, before.several, False
    nobody = bool(found) and found[0].key in {"nobody", "none"}
    keys: list[str] = []
    for one in found:
        key = one.key.removesuffix("'s")
        key = "everybody" if key in {"nobody", "none", "everyone", "all"} else key
        if (
            one.kind == "stop"
            or key in {"new", "current", "latest"}
            or key in lexicon.FILLERS
            or key in {"of", "on", "at", "and", "'s"}
        ):
            continue
        keys.append(_OWNERS.get(key, singular(key)))
    several = bool(found) and found[-1].kind == "word" and singular(found[-1].key) != found[-1].key
    return tuple(sorted(keys)), shown, several or "and" in (one.key for one in found), nobody


def _tidy(rest: tuple[Token, ...]) -> tuple[Token, ...]:
    """Drop what says nothing, and fold what is left."""
    kept: list[Token] = []
    for one in rest:
        if one.kind == "stop" or (one.kind == "word" and one.key in lexicon.FILLERS):
            continue
        if one.kind == "word" and one.key in {"and", "or", "me", "that", "of", "'s"}:
            continue
        key = one.key.removesuffix("'s")
        kept.append(replace(one, key=singular(key) if one.kind == "word" else key))
    return tuple(kept)


def _turned(claim: Claim) -> Claim:
    """Bring claims about names and roles into one form: "Dana is Tom's boss" is Tom's boss."""
    rest = claim.rest
    if claim.verb == "call" and not claim.subject and rest:
        return replace(claim, subject=("i", "name"), shown="your name", verb="be")
    if claim.verb == "be" and rest and rest[0].key == "named":
        subject = tuple(sorted((*claim.subject, "name")))
        return replace(claim, subject=subject, rest=rest[1:])
    if claim.verb == "be" and len(rest) == 1 and rest[0].key in {"on", "off"}:
        return replace(claim, rest=(Token("word", "on|off", rest[0].shown),),
                       denied=claim.denied ^ (rest[0].key == "off"))  # fmt: skip
    roles = [one for one in rest if one.key in lexicon.SINGLE or one.key in lexicon.MANY]
    if (
        claim.verb == "be"
        and len(rest) == 2
        and len(roles) == 1
        and len(claim.subject) == 1
        and claim.shown[:1].isupper()
        and claim.subject[0] not in {"i", "we", "you"}
        and all(one.kind == "name" or one.key in {*_OWNERS} or one in roles for one in rest)
    ):
        keys = tuple(sorted(_OWNERS.get(one.key, one.key) for one in rest))
        shown = " ".join(one.shown for one in rest)
        value = Token("name", claim.subject[0], claim.shown)
        return replace(claim, subject=keys, shown=shown, rest=(value,))
    return claim
