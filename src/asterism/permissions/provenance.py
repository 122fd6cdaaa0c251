"""Provenance: does a call fit what was asked for, after all that was read?

Structure is compared with structure. What the call does must be of a kind that was asked for; whom
and what it is done to must be a literal of the request, stand for one by a record that only the
owner's side can write, or be found where the request says; so must amounts. What it contains is
judged as its targets are.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import html
import posixpath
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

from asterism.permissions.intent import FOLLOW, Intent, LookupKind, LookupValue, TrustedText
from asterism.permissions.readings import (
    MAX_QUOTED,
    ReadContent,
    Record,
    amounts_said,
    amounts_told,
    as_seen,
    currencies_in,
    currency_of,
    digit_of,
    equal,
    excerpt,
    is_among,
    long_words,
    pieces_of,
    plain,
    same,
    sentences_apart,
    squeezed,
    stands_in,
    tight,
    word_count,
    worked_out,
)
from asterism.types.agents import OWNER, Trust, least_trusted
from asterism.types.permissions import Doubt, DoubtReason, Effect, EffectKind, Results
from asterism.types.values import (
    Address,
    address_of,
    links_in,
    numbers_in,
    plain_path,
    recipients_in,
)

T = TypeVar("T")
JUDGED = frozenset(EffectKind) - {EffectKind.READ, EffectKind.REMEMBER}
"""Reading is judged by who sees it; the gate of memory judges what is remembered."""
_ALSO_WRITTEN = frozenset({EffectKind.PAY, EffectKind.SEND})
"""To post is to send and to write, to book is to pay and to write: asking for it asks for the
record that is made of it, but never for a file, and asking to write asks for nothing else."""
_NEEDS_TARGET = frozenset({EffectKind.SEND, EffectKind.DELETE, EffectKind.PAY, EffectKind.GRANT})
"""For many tools no target means all of them."""
_SHOWN = 80
_MAX_VALUE = 4_000
_MAX_CONTENT = 200_000
"""Characters: longer texts are left to a person, so that no input holds the gate up."""
_MAX_TELLING = 200
"""More values in a text than this are left to a person."""
_MAX_SHORT_WORDS = 8
"""A value with more words is a text, not the new value of a field."""
_MAX_GREETING = 2
"""New words that may stand before a text that the request dictates, such as a greeting."""
_MAX_SUBJECT = 5
"""Words that may stand in another field beside it."""
_MAX_TITLE = 4
"""Words: a longer field is a text in which anything may be mentioned."""
_MIN_FOREIGN = 3
_MAX_MARK = 4
"""Characters between two dictated parts: a rank, a number of something."""
_TELLING = re.compile(r"[^\s,;()\[\]{}\"'<>]{4,200}")
_WHEN = re.compile(
    r"(?:19|20)\d{2}(?:[-./]\d{1,2}){0,2}(?:t[\d:.+z-]*)?|\d{1,2}[:.h]\d{2}(?:[:.]\d{2})?(?:am|pm)?"
    r"|\d{1,2}(?:st|nd|rd|th|am|pm)|\d{1,2}[./]\d{1,2}[./](?:\d{2}){1,2}"
)
_ODD_HEX = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[a-fA-F])[0-9a-fA-F]{10,}")
_ATTACHED = re.compile(
    r"(?:~|\.{0,2})/[^\s]{1,400}|[\w./-]{1,400}\.[A-Za-z][A-Za-z0-9]{0,4}|[A-Za-z]:\\[^\s]{1,400}"
)
_ODD = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+/=_-]{16,}|[A-Za-z0-9+/]{20,}={1,2}")
_IBAN = re.compile(r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{10,30}")
_ACCOUNT = re.compile(r"\b[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]){10,30}\b|\b\d(?:[ -]?\d){8,}\b")


class Evidence:
    """What was said by those who are trusted and what was read, up to a call."""

    def __init__(self, text: TrustedText) -> None:
        self.text = text
        self.readings: list[ReadContent] = []
        self._plain: tuple[TrustedText, str] | None = None
        self.requested_at = 0
        """How many readings there were when the latest request came."""
        self.pending: Sequence[Effect] = ()
        """What calls do that were let pass and have not come back yet."""
        self._known: dict[Any, Any] = {}
        self._counted = 0

    def known(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what was found before for a key, as long as nothing else was read."""
        if self._counted != len(self.readings):
            self._known.clear()
            self._counted = len(self.readings)
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def read(self, reading: ReadContent) -> None:
        """Take in what a tool brought, or what somebody said who is not trusted."""
        self.readings.append(reading)

    @property
    def trust(self) -> Trust:
        """The least trusted trust of what was read."""
        return least_trusted(reading.trust for reading in self.readings)

    def says(self, value: str) -> bool:
        """Tell whether trusted text says something, letter by letter."""
        return stands_in(plain(value), self._said)

    @property
    def _said(self) -> str:
        text = self.text
        if self._plain is None or self._plain[0] is not text:
            said = text.everything
            self._plain = (text, plain(f"{said}\n{sentences_apart(said)}"))
        return self._plain[1]

    def paid_since_request(self) -> list[Effect]:
        """Return the payments that were made for the latest request."""
        made = (
            effect for reading in self.readings[self.requested_at :] for effect in reading.effects
        )
        return [
            effect
            for effect in (*made, *self.pending)
            if effect.kind is EffectKind.PAY and effect.recipients
        ]

    def brought_by(self, value: str) -> ReadContent | None:
        """Return the untrusted reading in which a value stands."""
        if len(value) > _MAX_VALUE:
            return None
        for reading in self.readings:
            if not reading.trust.trusted and reading.brings(value):
                return reading
        return None

    def reasons(self, what: str, value: str = "") -> tuple[DoubtReason, ...]:
        """Return the way from untrusted text to something of a call."""
        reading = self.brought_by(value) if value else None
        if reading is not None:
            where = excerpt(value, reading.text)
            return (DoubtReason(what, str(reading), reading.trust.value, where),)
        for one in reversed(self.readings):
            if not one.trust.trusted and one.text.strip():
                return (DoubtReason(what, str(one), one.trust.value, excerpt("", one.text)),)
        return ()


def judge(evidence: Evidence, intents: Sequence[Intent], effects: Iterable[Effect]) -> Doubt | None:
    """Return why nobody asked for what a call does, or None if somebody did.

    Ask only after something untrusted was read: before, nobody needs to vouch for anything.
    """
    call = tuple(effects)
    leaves = any(effect.kind is EffectKind.SEND and not _tells_owner(effect) for effect in call)
    for one in call:
        # A file that is read to be sent leaves with what is sent.
        sent = one.kind is EffectKind.READ and leaves and bool(one.paths)
        effect = replace(one, kind=EffectKind.SEND) if sent else one
        if effect.kind not in JUDGED or _tells_owner(effect):
            continue
        doubt = _judge_one(evidence, intents, effect, call)
        if doubt is not None:
            return doubt
    return None


def _tells_owner(effect: Effect) -> bool:
    return effect.kind is EffectKind.SEND and set(effect.targets) == {OWNER}


def _judge_one(
    evidence: Evidence, intents: Sequence[Intent], effect: Effect, call: tuple[Effect, ...]
) -> Doubt | None:
    if _is_void(effect, call):
        return None
    missing = _missing(effect)
    if missing:
        return Doubt(f"it would {_words(effect.kind)}, and does not say {missing}")
    # Who asks for a payment or for access has asked for the note that goes with it.
    with_note = (EffectKind.PAY, EffectKind.GRANT)
    kinds = {effect.kind, *(one.kind for one in call if one.kind in with_note)}
    fitting = [intent for intent in intents if _fits(intent, effect, kinds)]
    if effect.kind is EffectKind.FETCH:
        if _asked_before(evidence, effect) or _leads_on(evidence, intents, effect):
            return None
        if not effect.targets and effect.content:
            return _Judgement(evidence, fitting, Intent(EffectKind.FETCH), effect).query()
    doubts = [_Judgement(evidence, fitting, one, effect).doubt() for one in fitting]
    if None in doubts:
        return _paid_already(evidence, fitting, effect, doubts.count(None))
    first = next(iter(doubts), None)
    if first is not None:
        return first
    return Doubt(
        f"it would {_words(effect.kind)}, and nobody who is trusted asked for that",
        evidence.reasons(effect.kind.value, next(iter(effect.targets), "")),
    )


def _paid_already(
    evidence: Evidence, fitting: Sequence[Intent], effect: Effect, covering: int
) -> Doubt | None:
    """Doubt a payment that was made for this request already: what was asked for is done once.

    Args:
        evidence: What was read, payments among it.
        fitting: Effects that ask for payments.
        effect: The payment.
        covering: How many of them ask for just this one.
    """
    if effect.kind is not EffectKind.PAY or not effect.recipients:
        return None

    def effects_for(payment: Effect) -> set[int]:
        return {
            place
            for place, one in enumerate(fitting)
            if _Judgement(evidence, fitting, one, payment).is_for_these()
        }

    asked = effects_for(effect)
    paid = [one.amount for one in evidence.paid_since_request() if asked & effects_for(one)]
    if paid.count(effect.amount) < covering and len(paid) < len(asked):
        return None
    return Doubt(
        "it would move money to whom it was moved for this request already",
        evidence.reasons(effect.kind.value, effect.recipients[0]),
    )


def _fits(intent: Intent, effect: Effect, kinds: set[EffectKind]) -> bool:
    """Tell whether an effect of a call is of a kind that was asked for."""
    if intent.kind == FOLLOW:
        # A text that the request names may say what to write and to tell, and to change an order
        # that is there; never whom to pay, what to delete, to run or to share.
        pays = effect.kind is EffectKind.PAY and not effect.recipients and not effect.hosts
        return pays or effect.kind in (EffectKind.SEND, EffectKind.WRITE)
    if effect.kind is EffectKind.UNDECLARED or intent.kind in kinds:
        return True
    kind = EffectKind(intent.kind)
    return effect.kind is EffectKind.WRITE and not effect.paths and kind in _ALSO_WRITTEN


def _is_void(effect: Effect, call: tuple[Effect, ...]) -> bool:
    """Tell whether nobody is told anything by a call that does something else."""
    others = [one for one in call if one is not effect and one.kind.outside]
    return effect.kind is EffectKind.SEND and not effect.targets and bool(others)


def _missing(effect: Effect) -> str:
    """Return what a call does not say although it matters, in words."""
    if effect.kind not in _NEEDS_TARGET:
        return ""
    if effect.kind is EffectKind.GRANT:
        roles = [role for role in ("recipients", "paths", "things") if role in effect.missing]
        if roles:
            return "to whom" if "recipients" in roles else "to what"
        return "" if effect.targets or effect.content else "to whom"
    if not any(target.strip() for target in effect.targets):
        return "to whom" if effect.kind in (EffectKind.SEND, EffectKind.PAY) else "what"
    if effect.kind is EffectKind.PAY and effect.recipients and "amount" in effect.missing:
        return "" if effect.things else "how much"
    return ""


def _leads_on(evidence: Evidence, intents: Sequence[Intent], effect: Effect) -> bool:
    """Tell whether a page is linked from a place of people let in, which the request names."""
    for intent in intents:
        judgement = _Judgement(evidence, intents, intent, effect)
        for found in intent.found:
            if not found.where:
                continue
            for spot in judgement.direct_spots(found):
                if not (spot.told and spot.reading.closed):
                    continue
                links = links_in(spot.record.prose)
                if effect.hosts and all(
                    any(_same_address(link, host) for link in links) for host in effect.hosts
                ):
                    return True
    return False


def _asked_before(evidence: Evidence, effect: Effect) -> bool:
    """Tell whether the same address was asked before in this context: it learns nothing new."""
    if not effect.hosts or effect.content:
        return False
    asked = {place for reading in evidence.readings for place in reading.places}
    return all(host in asked for host in effect.hosts)


@dataclass(slots=True)
class _Spot:
    """A record where a value may be found."""

    reading: ReadContent
    record: Record
    rank: tuple[int, int] = (0, 0)
    """How many literals of the request name its place or were written in it by the system, and how
    many are fields of it that others wrote."""
    known: int = 0
    """How many of them the system wrote in it."""
    in_text: bool = False
    """Whether a literal of the request stands only in text that anybody may have written."""
    told: bool = True
    """Whether the request tells it from other records."""


class _Judgement:
    """One effect of a call beside one effect that was asked for."""

    def __init__(
        self, evidence: Evidence, fitting: Sequence[Intent], intent: Intent, effect: Effect
    ) -> None:
        self.evidence = evidence
        self.fitting = fitting
        self.intent = intent
        self.effect = effect
        self.kind = effect.kind

    def doubt(self) -> Doubt | None:
        if self.kind is EffectKind.UNDECLARED:
            return self._anything()
        if self.kind is EffectKind.RUN:
            return self._dictated((*self.effect.targets, *self.effect.content))
        return self._payees() or self._targets() or self._amount() or self._content()

    def is_for_these(self) -> bool:
        """Tell whether it was asked to do it to these, however much."""
        return self._targets() is None

    def _because(self, what: str, value: str, why: str) -> Doubt:
        shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
        named = f"{what} {shown!r}" if value else what
        reasons = self.evidence.reasons(named, value)
        return Doubt(f"it would {_words(self.kind)}, and {named} {why}", reasons)

    def _not_asked(self, what: str, value: str) -> Doubt:
        brought = self.evidence.brought_by(value) if len(value) > 2 else None
        if brought is not None:
            return self._because(what, value, f"is named only by what {brought.tool} brought in")
        return self._because(what, value, "is not what was asked for")

    # -- to whom and to what -----------------------------------------------------------------------

    def _payees(self) -> Doubt | None:
        """Doubt a payment to more than was asked for, or beside an order that is to be changed."""
        effect = self.effect
        if effect.kind is not EffectKind.PAY or not effect.recipients:
            return None
        if len(effect.recipients) > max(1, len(self.intent.targets)):
            return self._because("so many recipients", "", "are not what was asked for")
        orders = any(one.what is LookupKind.ID for one in self.intent.found)
        if orders and not effect.things:
            return self._because("a payment of its own", "", "is not what was asked for")
        return None

    def _targets(self) -> Doubt | None:
        effect = self.effect
        if any(len(target) > _MAX_VALUE for target in effect.targets):
            return self._because("a name of this length", "", "cannot be judged")
        for recipient in effect.recipients:
            if recipient != OWNER and not self._names(_address_alone(recipient), _PEOPLE):
                return self._not_asked("recipient", recipient)
        for address in effect.hosts:
            if not self._leads_to(address):
                return self._not_asked("address", address)
        for path in effect.paths:
            if not self._means_path(path):
                return self._not_asked("path", path)
        for thing in effect.things:
            if not self._names(thing, _THINGS) or self._has_two_roles(thing):
                return self._not_asked("thing", thing)
        return None

    def _has_two_roles(self, thing: str) -> bool:
        """Tell whether one literal would stand for who gets something and for what it is."""
        if self.kind is EffectKind.PAY:
            # Which of two accounts is paid and which pays is told by `within`.
            return bool(self.effect.recipients) and is_among(thing, self.intent.targets)
        if self.kind is not EffectKind.GRANT:
            return False
        return any(
            equal(thing, target) and self._is_recipient(target) and not equal(thing, recipient)
            for target in self.intent.targets
            for recipient in self.effect.recipients
        ) or any(map(_is_path, self.effect.recipients))

    def _names(self, value: str, kinds: frozenset[LookupKind]) -> bool:
        """Tell whether a value is a literal of the request, stands for one, or is found."""
        if self.intent.kind == FOLLOW:
            return self._names_followed(value, kinds)
        pooled = self._pooled
        literals = [target for intent in pooled for target in intent.targets]
        things = kinds is _THINGS
        if things and self.kind is not EffectKind.DELETE:
            literals += [one for intent in pooled for one in intent.within]
        if self.kind is EffectKind.DELETE and self._is_container(value):
            return False
        if any(self._is_literal(value, literal) for literal in literals):
            return True
        if self.kind is EffectKind.PAY and not things and self._is_own_account(value):
            return True
        if any(is_among(value, self._stands_for(one, things=things)) for one in literals):
            return True
        return any(
            found.what in kinds and self._is_found(found, value)
            for intent in pooled
            for found in intent.found
        )

    def _is_own_account(self, value: str) -> bool:
        """Tell whether an account is that of the very order which is changed."""
        return bool(self.effect.things) and any(
            is_among(value, record.accounts) and all(map(record.holds, self.effect.things))
            for reading in self.evidence.readings
            for record in reading.records
        )

    @property
    def _pooled(self) -> Sequence[Intent]:
        """Effects of one kind that may together name the guests of one appointment or mail."""
        if self.kind not in (EffectKind.SEND, EffectKind.WRITE) or len(self.effect.recipients) < 2:
            return (self.intent,)
        own = self.intent
        return [one for one in self.fitting if (one.content, one.found) == (own.content, own.found)]

    def _is_literal(self, value: str, literal: str) -> bool:
        if self.kind is EffectKind.PAY and value.strip()[:1] == "@" != literal.strip()[:1]:
            return False  # a handle is an account, which a name is not
        return equal(value, literal) or equal(value, _address_alone(literal))

    def _is_container(self, value: str) -> bool:
        """Tell whether a value is what the things to delete are in, rather than one of them."""
        targets = self.intent.targets
        return not _is_path(value) and any(map(_is_path, targets)) and "/" not in value

    def _names_followed(self, value: str, kinds: frozenset[LookupKind]) -> bool:
        """Tell whether somebody is named by the request, or a thing by the text to be followed."""
        if self.evidence.says(value):
            return True
        if kinds is _THINGS:
            return self._is_followed(value)
        return any(is_among(value, self._stands_for(one)) for one in self._words_of_request)

    @cached_property
    def _words_of_request(self) -> list[str]:
        words = re.findall(r"[^\W\d_][\w.'-]{1,60}", self.evidence.text.request[:_MAX_VALUE])
        return [word for word in words if word[:1].isupper()]

    def _is_followed(self, value: str) -> bool:
        """Tell whether a thing has a name that stands in the text which is to be followed."""
        return any(record.holds(value) for record in self._followed)

    @cached_property
    def _texts_followed(self) -> list[str]:
        return [spot.record.plain_prose for one in self.intent.found for spot in self._spots(one)]

    @cached_property
    def _followed(self) -> list[Record]:
        """Records that the text speaks of which is to be followed."""
        return [
            record
            for reading in self.evidence.readings
            for record in reading.records
            if any(
                len(value) >= 4 and value[0].isalpha() and stands_in(value, text)
                for value in record.values
                for text in self._texts_followed
            )
        ]

    def _stands_for(self, literal: str, *, things: bool = False) -> set[str]:
        """Return what a name stands for by a record that only the owner's side can write.

        The id of a thing may also be that of the one record in which a system itself has the name.
        """
        key = (literal, things, self.kind is EffectKind.PAY)
        return self.evidence.known(key, lambda: self._find_names(literal, things))

    def _find_names(self, literal: str, things: bool) -> set[str]:
        wanted = plain(literal)
        exact: list[Record] = []
        partly: list[Record] = []
        declined: list[Record] = []
        for reading in self.evidence.readings:
            if not (reading.owned or things or reading.results.fields):
                continue
            for record in reading.records:
                whole = record.values if reading.owned or things else record.names
                if any(same(wanted, one) for one in whole):
                    exact.append(record)
                elif any(_begins_name(wanted, name) for name in record.names) or (
                    things and any(stands_in(wanted, one) for one in whole if len(one) <= 80)
                ):
                    partly.append(record)
                elif any(_is_declined(wanted, one) for one in record.names):
                    declined.append(record)
        # A name that several have stands for none of them.
        records = exact or partly or declined
        told = {frozenset(one.values) for one in records}
        if len(told) != 1:
            return set()
        payee = self.kind is EffectKind.PAY and not things
        if not payee:
            return set(records[0].raw)
        # A tool that is told a name looks the account up itself.
        names = (one for one in records[0].raw if plain(one) in records[0].names)
        return {*_accounts(records[0]), *names}

    def _is_found(self, found: LookupValue, value: str) -> bool:
        """Tell whether a value stands where the request says that it is to be found."""
        spots = list(self._spots(found))
        if self.kind is EffectKind.PAY:
            return self._is_payee(found, spots, value)
        if self.kind is EffectKind.RUN:
            return False
        having = [one.record.holds(value) for one in spots if one.told]
        if any(having) and not all(having) and not found.every:
            return False  # of several that the request means alike, it does not say which
        for spot in spots:
            reading, record, told = spot.reading, spot.record, spot.told
            if self.kind is EffectKind.DELETE and value.strip() not in record.raw:
                continue
            if not self._is_theirs(found, record, value):
                continue
            if record.holds(value) and (told or (reading.closed and self._may_choose())):
                return True
            if (
                stands_in(plain(value), record.trusted_text)
                and reading.owned
                and (told or self._may_choose())
            ):
                return True
            # Text of a place that the request names may say who, and never whom to pay or delete.
            # Where a system keeps who wrote and who takes part, what they write names nobody.
            declared = bool(reading.results.fields) and not reading.closed
            in_text = bool(found.where) and told and not declared
            in_text = in_text and self.kind is not EffectKind.DELETE
            if in_text and self._stands_in_text(found, value, record):
                return True
        return False

    def _is_theirs(self, found: LookupValue, record: Record, value: str) -> bool:
        """Tell whether an address is that of the person by whose name its record is known.

        A mail that is addressed to Ann is not from her. Whom the owner's contacts know by a name
        has the address that stands there.
        """
        if found.what is not LookupKind.ADDRESS or "@" not in value:
            return True
        for literal in found.where:
            known = [contact for contact in self._in_contacts(literal) if "@" in contact]
            if known and not is_among(value, known):
                return False
            named = [one for one in record.raw if _names_value(plain(literal), plain(one))]
            if named and all("@" in one for one in named) and not is_among(value, named):
                return False
        return True

    def _in_contacts(self, literal: str) -> list[str]:
        """Return what records of the owner's side say of somebody who is called so."""
        wanted = plain(literal)
        return [
            value
            for reading in self.evidence.readings
            if reading.owned
            for record in reading.records
            if any(same(wanted, name) or _begins_name(wanted, name) for name in record.names)
            for value in record.raw
        ]

    def _may_choose(self) -> bool:
        """Tell whether one of many may be taken that the request does not tell from the others."""
        return self.kind is not EffectKind.DELETE

    def _stands_in_text(self, found: LookupValue, value: str, record: Record) -> bool:
        if found.what is LookupKind.ADDRESS:
            there = {plain(one) for one in links_in(record.prose)}
            there |= {plain(one) for one in _ACCOUNT.findall(record.prose)}
            return is_among(value, there)
        if found.what is LookupKind.NAME:
            return bool(value.strip()) and stands_in(plain(value), record.plain_prose)
        return False

    def _is_payee(self, found: LookupValue, spots: Sequence[_Spot], value: str) -> bool:
        """Take a payee from the bank's own fields or the owner's records, if only one is meant."""
        told = [spot for spot in spots if spot.told]
        if value in self.effect.things:
            # What is ordered, and not who is paid.
            return any(
                one.record.holds(value)
                or (found.where and found.what is LookupKind.NAME and _in_text(one.record, value))
                for one in told
            )
        meant = {frozenset(_accounts(one.record)) for one in told}
        meant -= {frozenset[str]()}
        if not any(is_among(value, accounts) for accounts in meant):
            return False
        if len(meant) == 1:
            return True
        # Records of the same payee are one payee: what all of them have in common.
        common = set[str]().union(*meant).intersection(*meant)
        return is_among(value, common)

    def _spots(self, found: LookupValue) -> list[_Spot]:
        """Return the records where a value is to be found, and the pages that they lead to."""
        return [*self.direct_spots(found), *self._linked(found)]

    def direct_spots(self, found: LookupValue) -> list[_Spot]:
        """Return the records where a value is to be found, those that the request tells best."""
        return self.evidence.known((found, self.kind), lambda: self._find_spots(found))

    def _find_spots(self, found: LookupValue) -> list[_Spot]:
        """Return the records where a value is to be found, those that the request tells best.

        A literal of the request tells a record apart where the system or the owner's side wrote it.
        In text that anybody wrote it tells only which thing of the owner's to change, and only one.
        """
        spots: list[_Spot] = []
        mentions = _in_title if self.kind is EffectKind.DELETE else _in_text
        for reading in self.evidence.readings:
            if found.source and plain(found.source) != plain(reading.source):
                continue
            about = [one for one in found.where if reading.is_about(one)]
            if not found.source and not about:
                continue
            rest = [one for one in found.where if one not in about]
            for record in reading.records:
                surely = [one for one in rest if self._record_has(record, one)]
                in_text = [one for one in rest if one not in surely and mentions(record, one)]
                if len(surely) + len(in_text) == len(rest):
                    pays = self.kind is EffectKind.PAY
                    exactly = sum(_is_part(record, one) for one in (in_text if pays else rest))
                    rank = (len(about) + len(surely), exactly)
                    spots.append(_Spot(reading, record, rank, len(surely), bool(in_text)))
        best = max((one.rank for one in spots), default=(0, 0))
        if found.what is not LookupKind.TEXT:
            spots = [one for one in spots if one.rank == best]
        else:
            spots = [one for one in spots if one.rank[0] == best[0]]
        changes = self.kind in (EffectKind.WRITE, EffectKind.DELETE) and len(spots) == 1
        for spot in spots:
            named = spot.rank[0] > 0 and not spot.in_text
            spot.told = spot.known > 0 or named or changes or (spot.in_text and spot.reading.closed)
        return spots

    def _linked(self, found: LookupValue) -> Iterator[_Spot]:
        """Yield pages to which the place leads that the request names."""
        if found.what is LookupKind.LINK or not found.where:
            return
        for reading in self.evidence.readings:
            if reading.trust is not Trust.WEB or not reading.places:
                continue
            for other in self.evidence.readings:
                if other is reading or (
                    found.source and plain(found.source) != plain(other.source)
                ):
                    continue
                leads = any(_same_address(link, reading.places[0]) for link in other.links)
                if leads and all(
                    other.is_about(one) or any(self._record_has(r, one) for r in other.records)
                    for one in found.where
                ):
                    for record in reading.records:
                        yield _Spot(reading, record, (1, 0))

    def _record_has(self, record: Record, literal: str) -> bool:
        wanted = plain(literal)
        if any(_names_value(wanted, one) for one in record.values):
            return True
        amounts = amounts_said(literal) if len(literal) <= 32 else ()
        if len(amounts) == 1 and round(amounts[0], 2) in record.numbers:
            return True
        return any(record.holds(one) for one in self._stands_for(literal))

    # -- paths and addresses -----------------------------------------------------------------------

    def _means_path(self, path: str) -> bool:
        wanted = plain_path(path)
        if wanted is None:
            return False
        if self.kind is EffectKind.DELETE and self._is_container(path):
            return False
        literals = [plain_path(target) for target in self.intent.targets]
        if wanted in literals or self._is_in_named_folder(wanted):
            return True
        if self.kind is EffectKind.SEND and self._is_named_place(path):
            return True
        if any(
            found.what in (LookupKind.PATH, LookupKind.NAME) and self._is_found(found, path)
            for found in self.intent.found
        ):
            return True
        if self.intent.kind == FOLLOW and self.kind is EffectKind.WRITE:
            return not path.startswith(("/", "~", "..", "$")) and any(
                stands_in(plain(path), text) for text in self._texts_followed
            )
        coins = self.kind is EffectKind.WRITE and not any(map(_is_path, self.intent.targets))
        return coins and self._is_new(path) and self.evidence.brought_by(path) is None

    def _is_named_place(self, path: str) -> bool:
        """Tell whether a file is one that the request says to send or to take a text from."""
        wanted = plain_path(path)
        literals = [one for found in self.intent.found for one in found.where]
        return wanted is not None and wanted in [plain_path(literal) for literal in literals]

    def _is_new(self, path: str) -> bool:
        """Tell whether a name that nobody gave could only be that of something new of the agent's.

        A word of it must be the request's, so that it does not overwrite what is there.
        """
        name = posixpath.normpath(path.replace("\\", "/"))
        if name.startswith(("/", "~", "..")) or ":" in name:
            return False
        if any(part.startswith(".") and part != "." for part in name.split("/")):
            return False
        words = re.findall(r"[^\W\d_]{3,}", posixpath.splitext(posixpath.basename(name))[0])
        return any(self.evidence.says(word) for word in words)

    def _is_in_named_folder(self, path: str) -> bool:
        """Tell whether a file of a name is in the folder that is named, or the one that has it."""
        folder, _, name = path.rpartition("/")
        if _is_path(posixpath.basename(folder)):
            return False
        if not folder or not any(
            same(plain(name), plain(target)) for target in self.intent.targets
        ):
            return False
        named = (*self.intent.targets, *self.intent.within)
        if all(any(part == one for one in named) for part in folder.split("/")) or folder in named:
            return True
        having = {
            plain_path(place)
            for reading in self.evidence.readings
            if reading.results.fields
            for place in reading.places
            if any(record.holds(name) for record in reading.records)
        }
        return having == {folder}

    def _leads_to(self, address: str) -> bool:
        """Tell whether an address was named, or is a link where the request says."""
        parts = address_of(address)
        if parts is None or parts.user is not None:
            return False
        fragment = parts.rest.partition("#")[2]
        if fragment and self.evidence.brought_by(fragment) is not None:
            return False
        if any(
            _same_address(literal, address) or self._is_on_host(literal, address, parts)
            for literal in self.intent.targets
        ):
            return True
        for found in self.intent.found:
            if found.what not in (LookupKind.LINK, LookupKind.ADDRESS):
                continue
            for spot in self._spots(found):
                page = spot.reading.trust is Trust.WEB
                links = spot.reading.links if page else spot.record.links
                if spot.told and any(_same_address(link, address) for link in links):
                    return True
        return False

    def _is_on_host(self, literal: str, address: str, parts: Address) -> bool:
        """Tell whether a host is named, and an address on it carries nothing that was read."""
        named = address_of(literal)
        if named is None or named.rest.strip("/") or not _same_host(named.host, parts.host):
            return False
        if parts.scheme not in ("", "http", "https", named.scheme):
            return False
        if (parts.port or None) != (named.port or None):
            return False
        return self._is_plain(parts.rest) or self._is_linked_from(parts.host, address)

    def _is_plain(self, rest: str) -> bool:
        """Tell whether all that an address carries beyond its host are words of the request."""
        rest = rest.partition("#")[0]
        if any(sign in rest for sign in "?;@%\\"):
            return False
        parts = [one for one in rest.split("/") if one]
        return all(self.evidence.says(part) for part in parts)

    def _is_linked_from(self, host: str, address: str) -> bool:
        """Tell whether a page of the same host has an address as a link."""
        for reading in self.evidence.readings:
            own = address_of(reading.places[0]) if reading.places else None
            if own is None or not _same_host(own.host, host) or reading.trust is not Trust.WEB:
                continue
            if _leads_elsewhere(address):
                continue
            if any(_same_address(link, address) for link in reading.links):
                return True
        return False

    # -- how much ----------------------------------------------------------------------------------

    def _amount(self) -> Doubt | None:
        effect = self.effect
        if effect.amount_unreadable:
            return self._because("the amount", "", "cannot be read")
        if effect.amount is None:
            return None
        unit = self._foreign_unit()
        if unit:
            return self._not_asked("unit", unit)
        amount = round(effect.amount, 2)
        return None if self._is_amount(amount) else self._not_asked("amount", f"{amount:g}")

    def _is_amount(self, amount: float) -> bool:
        """Tell whether an amount was said, is found where the request says, or is worked out."""
        literal = self._literal_amounts()
        several = len(self.effect.recipients) > 1
        if self.intent.computed:
            known = {*literal, *numbers_in(self.evidence.text.request)}
            known = known.union(*self._amounts_found())
            return amount in worked_out(known, self.intent.computed)
        if amount in literal or (several and amount == round(sum(literal), 2)):
            return True
        kept, told = self._amounts_found()
        if self.intent.kind == FOLLOW:
            # A text may set the amount of an order that is there, but not to any.
            most = 2 * max(kept, default=0.0)
            sums = worked_out(kept | told, "more") | worked_out(kept | told, "less")
            return amount in kept or (0 < amount <= most and amount in told | sums)
        if amount in kept or amount in told:
            return True
        # One of it, where nothing is said of how many.
        return not self.effect.recipients and not self.intent.amounts and amount == 1

    def _literal_amounts(self) -> set[float]:
        """Return the amounts of the request that are for these recipients."""
        amounts = [amounts_said(text) for text in self.intent.amounts]
        targets = self.intent.targets
        if self.kind is EffectKind.PAY and len(targets) > 1 and len(amounts) > 1:
            # Amounts go with their own payee, in the order in which they stand.
            own = [
                amounts[place]
                for place, one in enumerate(targets)
                if len(amounts) == len(targets) and self._is_recipient(one)
            ]
            amounts = own
        return {round(one, 2) for group in amounts for one in group}

    def _is_recipient(self, literal: str) -> bool:
        known = (literal, *self._stands_for(literal))
        return any(is_among(recipient, known) for recipient in self.effect.recipients)

    def _foreign_unit(self) -> str:
        """Return the unit of an amount if the request speaks of another one."""
        spoken = currencies_in(self.evidence.text.request)
        for unit in self.effect.unit.split():
            if spoken and currency_of(unit) not in spoken and not self.evidence.says(unit):
                return unit
        return ""

    def _amounts_found(self) -> tuple[set[float], set[float]]:
        """Return amounts that a system keeps, and those that a named place tells in its text."""
        kept: set[float] = set()
        told: set[float] = set()
        follows = self.intent.kind == FOLLOW
        if follows:
            kept = {number for record in self._followed for number in record.numbers}
        for found in self.intent.found:
            if found.what is not LookupKind.AMOUNT and not follows:
                continue
            for spot in self._spots(found):
                # Who writes into the bank's records has to move what they say.
                kept |= spot.record.numbers
                if spot.told and not (spot.reading.owned or spot.reading.results.accounts):
                    told |= amounts_told(spot.record.prose)
        return kept, told

    # -- what it contains --------------------------------------------------------------------------

    def _content(self) -> Doubt | None:
        if self.kind is EffectKind.GRANT and not self.effect.recipients:
            return self._dictated(self.effect.content)
        own_file = (
            self.kind is EffectKind.WRITE and not self.effect.recipients and self.effect.paths
        )
        for text in self.effect.content:
            if len(text) > _MAX_CONTENT:
                return self._because("a text of this length", "", "cannot be judged")
            doubt = self._attached(text) or self._links_in(text, own_file=bool(own_file))
            doubt = doubt or self._tells(text)
            if not own_file:
                doubt = doubt or self._filled_in(text)
            if doubt is not None:
                return doubt
        return self._replaced()

    def _attached(self, text: str) -> Doubt | None:
        """Doubt the path of a file that goes with a message, if the request does not name it."""
        if self.kind is not EffectKind.SEND or not _ATTACHED.fullmatch(text.strip()):
            return None
        path = text.strip()
        if self.evidence.says(path) or self._means_path(path):
            return None
        return self._not_asked("file", path)

    def _replaced(self) -> Doubt | None:
        """Doubt texts that say something else than what the request dictates."""
        dictated = [plain(one).strip(MARKS) for one in self.intent.content]
        dictated = [one for one in dictated if one]
        if not dictated or any(one.what is LookupKind.TEXT for one in self.intent.found):
            return None
        if self.kind not in (EffectKind.SEND, EffectKind.WRITE):
            return None
        if self.kind is EffectKind.WRITE and not self.effect.paths:
            return None  # values of fields are judged one by one
        longest = max(dictated, key=len)
        texts = [plain(text) for text in self.effect.content]
        said = [longest] if any(longest in text for text in texts) else []
        said = said or [one for text in texts if (one := reported(longest, text))]
        if not said:
            return self._because("what was dictated", "", "is not in it")
        for text in self.effect.content:
            doubt = self._beside(text, (*dictated, *said))
            if doubt is not None:
                return doubt
        return None

    def _beside(self, text: str, dictated: Sequence[str]) -> Doubt | None:
        """Doubt what stands beside a dictated text, but for a greeting and a name below it."""
        lines = "\n".join(plain(line) for line in text.splitlines())
        parts = [one for one in dictated if one in plain(text)]
        if not parts:
            short = word_count(lines) <= _MAX_SUBJECT and not self._has_new_digits(lines)
            return None if short else self._not_asked("text", " ".join(lines.split()))
        said = plain(text)
        if said.strip(MARKS) in parts:
            return None
        first, last = spread(said, parts)
        before, after = said[:first], said[last:]
        between = said[first:last]
        for part in sorted(parts, key=len, reverse=True):
            between = between.replace(part, " ")
        closing = after.strip(MARKS)
        more = (
            self._new_words(before) > _MAX_GREETING
            or len(between.strip(MARKS)) > _MAX_MARK
            or (bool(closing) and not is_signature(lines, closing) and not is_ending(closing))
            or self._has_new_digits(f"{before} {closing}")
        )
        if more:
            return self._not_asked("text", " ".join((before + between + after).split()))
        return None

    def _new_words(self, text: str) -> int:
        """Return how many words of a greeting are neither the request's nor somebody's name."""
        names = " ".join(
            name
            for reading in self.evidence.readings
            for record in reading.records
            for name in record.names
        )
        words = [word.strip(MARKS) for word in text.split() if word.strip(MARKS)]
        new = [one for one in words if not (self.evidence.says(one) or stands_in(one, names))]
        return word_count(" ".join(new))

    def _has_new_digits(self, text: str) -> bool:
        """Tell whether a text has numbers that the request does not have."""
        return any(
            any(map(str.isdigit, word)) and not self.evidence.says(word.strip(MARKS))
            for word in text.split()
        )

    def _dictated(self, texts: Sequence[str]) -> Doubt | None:
        """A command and a password must be the owner's, word by word and whole."""
        dictated = [one.strip("`\"' ") for one in self.intent.content]
        if self.kind is EffectKind.RUN and texts and " ".join(texts).strip() in dictated:
            return None  # a command, maybe as a list of its words
        if not any(text.strip() for text in texts):
            return self._because("what was dictated", "", "is not in it")
        for text in texts:
            if text not in dictated:
                return self._not_asked("text", text)
        return None

    def _links_in(self, text: str, *, own_file: bool = False) -> Doubt | None:
        """Doubt a link that nobody trusted named: whoever gets it takes it for the owner's.

        Into a file of the owner's may go what stands where the request says.
        """
        links = links_in(text)
        if len(links) > _MAX_TELLING:
            return self._because("so many links", "", "cannot be judged")
        for link in links:
            if self.evidence.says(link) or self.evidence.says(_bare(link)):
                continue
            if any(_same_address(link, target) for target in self.intent.targets):
                continue
            if self._is_own(link) or self._is_covered_link(link):
                continue
            if own_file and (
                self.evidence.brought_by(link) is None or as_seen(link) in self._covered_text
            ):
                continue
            return self._not_asked("link", link)
        return None

    def _is_own(self, link: str) -> bool:
        """Tell whether a link is an address that the owner's side keeps, or where was read."""
        for reading in self.evidence.readings:
            if reading.owned and any(_same_address(link, one) for one in reading.links):
                return True
        return any(
            _same_address(link, place) for spot in self._covered for place in spot.reading.places
        )

    def _is_covered_link(self, link: str) -> bool:
        mail = "@" in link and "://" not in link
        for found in self.intent.found:
            if found.what is not LookupKind.LINK and not (
                mail and found.what is LookupKind.ADDRESS
            ):
                continue
            for spot in self.direct_spots(found):
                links = spot.record.links if spot.told else ()
                if any(_same_address(link, one) for one in links):
                    return True
        return False

    def _tells(self, text: str) -> Doubt | None:
        """Doubt a text that tells what was read where the request does not speak of."""
        words = dict.fromkeys(one.strip(".:!?*_-/") for one in _TELLING.findall(text))
        telling = [*dict.fromkeys(_ACCOUNT.findall(text)), *filter(_is_telling, words)]
        if len(telling) > _MAX_TELLING:
            return self._because("so much", "", "cannot be judged")
        for word in telling:
            if not self._may_tell(word):
                return self._not_asked("value", word)
        leak = self._leaks.first(text)
        if leak:
            return self._because("value", leak, "was read where the request does not speak of")
        # A subject or the note of a payment may echo what it answers; what is told may not.
        told = self.kind is EffectKind.SEND and text == max(self.effect.content, key=len)
        foreign = self._words_from_elsewhere(text) if told else ""
        if foreign:
            return self._because("text", foreign, "was read where the request does not speak of")
        quoted = self._quoted_from_elsewhere(text)
        if quoted:
            return self._because("text", quoted, "was read where the request does not speak of")
        return None

    def _may_tell(self, value: str) -> bool:
        """Tell whether a value comes from a place that the request speaks of."""
        if self.evidence.says(value):
            return True
        wanted = as_seen(value)
        if wanted in self._covered_text or squeezed(wanted) in self._covered_tight:
            return True
        if any(reading.brings(value) for reading in self.evidence.readings):
            return False
        # Nobody has said it: a model may write new numbers, and nothing that looks encoded.
        return not (_ODD.fullmatch(value) or _ODD_HEX.fullmatch(value))

    def _words_from_elsewhere(self, text: str) -> str:
        """Return the words of a text if most of them stand only where the request does not name."""
        words = long_words(text[:MAX_QUOTED])
        untrusted = [one for one in self.evidence.readings if not one.trust.trusted]
        foreign = [word for word in words if any(word in reading.words for reading in untrusted)]
        if len(foreign) <= len(words) / 2:
            return ""
        known = long_words(self.evidence.text.everything) | long_words(self._covered_text)
        foreign = [one for one in foreign if one not in known]
        derived = any(one.what is LookupKind.TEXT for one in self.intent.found)
        few = 1 if derived and len(text.split()) > 1 else _MIN_FOREIGN
        if len(foreign) < few or len(foreign) <= len(words) / 2:
            return ""
        return " ".join(sorted(foreign))

    def _quoted_from_elsewhere(self, text: str) -> str:
        """Return a piece of a text that stands in a reading which the request does not name."""
        pieces = dict.fromkeys(pieces_of(text[:MAX_QUOTED]))
        if not pieces:
            return ""
        untrusted = [one for one in self.evidence.readings if not one.trust.trusted]
        quoted = [one for one in pieces if any(one in reading.pieces for reading in untrusted)]
        if not quoted:
            return ""
        known = {
            *pieces_of(self.evidence.text.everything[-MAX_QUOTED:]),
            *(
                piece
                for spot in self._covered
                for piece in pieces_of(spot.record.text[:MAX_QUOTED])
            ),
        }
        return next((one for one in quoted if one not in known), "")

    @cached_property
    def _leaks(self) -> Leaks:
        """What tells whether a text carries what was read where the request does not speak of."""
        covered = {id(spot.record) for spot in self._covered}
        secret = "\n".join(
            record.text
            for reading in self.evidence.readings
            if not reading.trust.trusted
            for record in reading.records
            if id(record) not in covered
        )
        said = f"{self.evidence.text.everything}\n{self._covered_raw}"
        return Leaks(secret[:_MAX_CONTENT], said)

    @cached_property
    def _covered_raw(self) -> str:
        return "\n".join(spot.record.text for spot in self._covered)

    @cached_property
    def _covered_tight(self) -> str:
        return squeezed(self._covered_text)

    @cached_property
    def _covered_text(self) -> str:
        return as_seen(self._covered_raw)

    @cached_property
    def _covered(self) -> list[_Spot]:
        """What a text may be made from: places that the request names."""
        intent = self.intent
        covered = [spot for found in intent.found for spot in self._spots(found)]
        for reading in self.evidence.readings:
            named = any(
                same(plain(place), plain(one)) or _same_address(place, one)
                for place in reading.places
                for one in (target for intent in self.fitting for target in intent.targets)
            )
            if named or any(self.evidence.says(place) for place in reading.places):
                covered += [_Spot(reading, record) for record in reading.records]
        return covered

    def _filled_in(self, text: str) -> Doubt | None:
        """Doubt the new value of a field that nobody dictated and no named place has."""
        if self.kind is not EffectKind.WRITE or self.evidence.says(text) or len(text) < 2:
            return None
        derived = any(one.what is LookupKind.TEXT for one in self.intent.found)
        if self.intent.content and not derived:
            return None if self._is_dictated_value(text) else self._not_asked("value", text)
        if len(text.split()) > _MAX_SHORT_WORDS:
            return None
        brought = self.evidence.brought_by(text)
        if brought is None:
            return None
        wanted = plain(text)
        for spot in self._covered:
            record = spot.record
            if record.holds(text) or stands_in(wanted, plain(record.text)):
                return None
        return self._because("value", text, f"is named only by what {brought.tool} brought in")

    def _is_dictated_value(self, text: str) -> bool:
        """Tell whether a value is dictated as a whole, or is a word of the request inflected."""
        wanted = plain(text).strip(MARKS)
        if any(wanted == plain(one).strip(MARKS) for one in self.intent.content):
            return True
        words = self.evidence.text.request.split()
        return " " not in wanted and any(
            inflects(plain(word).strip(MARKS), wanted) for word in words
        )

    def query(self) -> Doubt | None:
        """Judge what is searched for outside: it leaves, and whoever is asked reads it."""
        private = [reading for reading in self.evidence.readings if reading.trust is not Trust.WEB]
        for text in self.effect.content:
            words = [one.strip(".,:;!?\"'()") for one in text.split()]
            if all(self.evidence.says(word) or len(word) < 3 for word in words):
                continue
            dictated = [one for intent in self.fitting for one in intent.content]
            if any(plain(text) == plain(one) for one in dictated):
                continue
            if dictated:
                return self._not_asked("query", text)
            if private and not self.fitting:
                return self._not_asked("query", text)
            doubt = self._links_in(text) or self._tells(text)
            if doubt is not None:
                return doubt
        return None

    # -- whatever ----------------------------------------------------------------------------------

    def _anything(self) -> Doubt | None:
        """A tool that does not say what it does may be given what one effect of the request has."""
        literals = [*self.intent.targets, *self.intent.amounts, *self.intent.content]
        for text in (*self.effect.targets, *self.effect.content):
            if not any(same(plain(text), plain(literal)) for literal in literals):
                return self._not_asked("argument", text)
        if not (self.effect.targets or self.effect.content):
            return self._because("what it does", "", "is not declared")
        return None


_PEOPLE = frozenset({LookupKind.ADDRESS, LookupKind.NAME})
_THINGS = frozenset({LookupKind.ID, LookupKind.NAME, LookupKind.PATH, LookupKind.ADDRESS})


def _is_telling(word: str) -> bool:
    """Tell whether a word says more than a common one: it has digits, and is no date."""
    if _ODD.fullmatch(word):
        return True
    if not any(char.isdigit() for char in word) or _WHEN.fullmatch(word.casefold()):
        return False
    return len(word) >= 4


def _accounts(record: Record) -> list[str]:
    """Return what of a record can be paid: of several that look like accounts, none."""
    accounts = list(dict.fromkeys(record.accounts))
    if not record.guessed:
        return accounts
    numbers = [account for account in accounts if _IBAN.fullmatch(squeezed(account))]
    numbers = numbers or [one for one in accounts if _ACCOUNT.fullmatch(one)]
    if len({plain(number) for number in numbers}) > 1:
        accounts = [one for one in accounts if one not in numbers]
    return accounts


def _address_alone(recipient: str) -> str:
    """Return the address of `Bob Stone <bob@stone.example>` or `mailto:bob@stone.example`."""
    if "@" not in recipient:
        return recipient
    named = recipients_in(recipient)
    return named[0] if named is not None and len(named) == 1 else recipient


def _leads_elsewhere(address: str) -> bool:
    """Tell whether an address carries another one, as links do that lead on to anywhere."""
    rest = unquote(unquote(address)).partition("?")[2]
    return "//" in rest


def _begins_name(wanted: str, name: str) -> bool:
    """Tell whether somebody's name begins with a name: `Bob` for Bob Stone, not for Bobby."""
    parts = [part.strip() for part in re.split(r"[(),;/]", name)]
    return any(
        part == wanted or (part.startswith(wanted) and part[len(wanted)] in " ・·")
        for part in parts
    )


def _is_declined(wanted: str, name: str) -> bool:
    """Tell whether a name stands in another case, in scripts of languages that decline names."""
    first = name.partition(" ")[0]
    return "\u0400" <= wanted[:1] <= "\u04ff" and inflects(wanted, first)


def _names_value(wanted: str, value: str) -> bool:
    return (
        same(wanted, value) or _begins_word(wanted, value) or _begins_word(wanted, _as_words(value))
    )


def _in_text(record: Record, literal: str) -> bool:
    return _begins_word(plain(literal), record.plain_prose)


def _in_title(record: Record, literal: str) -> bool:
    """Tell whether a field of few words has a literal, or one begins with it."""
    wanted = plain(literal)
    return any(
        _begins_word(wanted, part) and (word_count(part) <= _MAX_TITLE or part.startswith(wanted))
        for part in map(plain, record.prose_parts)
    )


def _is_part(record: Record, literal: str) -> bool:
    """Tell whether a whole field of a record says just this."""
    wanted = plain(literal)
    return any(same(wanted, plain(one)) for one in (*record.prose_parts, *record.values))


def _as_words(name: str) -> str:
    """Return the name of a file or a channel as the words that it is made of."""
    return name.replace("-", " ").replace("_", " ") if len(name) <= 200 else name


def _begins_word(name: str, text: str) -> bool:
    """Tell whether a name stands in a text, or begins a word of it."""
    if stands_in(name, text):
        return len(name) >= 3 or not name.isascii()
    at = text.find(name)
    return len(name) >= 4 and at >= 0 and (at == 0 or text[at - 1] in " /\n")


def _same_host(one: str, other: str) -> bool:
    return one.removeprefix("www.") == other.removeprefix("www.")


def _same_address(one: str, other: str) -> bool:
    if one == other:
        return True
    if "@" in one and "://" not in one:
        return plain(one) == plain(other)
    first, second = address_of(one), address_of(other)
    if first is None or second is None or first.user != second.user:
        return False
    schemes = {first.scheme, second.scheme} - {"", "http", "https"}
    if schemes and first.scheme != second.scheme:
        return False
    return (
        _same_host(first.host, second.host)
        and first.port == second.port
        and _way(first.rest) == _way(second.rest)
    )


def _way(rest: str) -> str:
    """Return path and query of an address; what stands behind `#` is not sent to the host."""
    return unquote(rest.partition("#")[0]).rstrip("/")


def _bare(link: str) -> str:
    """Return a link without its scheme and the slash at its end."""
    return re.sub(r"^[a-zA-Z]{1,32}:(?://)?", "", link.strip()).rstrip("/")


def _is_path(text: str) -> bool:
    return "/" in text or bool(re.fullmatch(r"[^\s@]{1,200}\.[A-Za-z0-9]{1,5}", text))


def _words(kind: EffectKind) -> str:
    return {
        EffectKind.FETCH: "ask a host outside",
        EffectKind.SEND: "tell somebody something",
        EffectKind.WRITE: "change something",
        EffectKind.RUN: "run a program",
        EffectKind.DELETE: "take something away",
        EffectKind.PAY: "move money",
        EffectKind.GRANT: "change who has access",
        EffectKind.UNDECLARED: "do something that its tool does not declare",
    }[kind]


def places_of(effects: Iterable[Effect]) -> tuple[str, ...]:
    """Return which arguments of a reading call say what is read."""
    return tuple(target for effect in effects for target in effect.targets)


def reading_of(
    tool: str,
    value: Any,
    trust: Trust,
    arguments: dict[str, Any],
    effects: Iterable[Effect],
    results: Results,
    key: str = "",
) -> ReadContent:
    """Return a result of a call as something that was read."""
    done = tuple(effects)
    return ReadContent(
        tool,
        value,
        trust,
        arguments=arguments,
        places=places_of(done),
        results=results,
        effects=done,
        key=key,
    )


_MAX_TEXT = 50_000
"""Characters: in a longer text anything can be hidden, so that a person is asked."""
_MIN_DIGITS = 4
_MIN_WORD = 5
_MIN_RUN_TOGETHER = 10
_PIECE = 10
_DIGITS = re.compile(r"\d(?:[\s,.\-_/'’:;|]{0,2}\d)+")
_MOMENT = re.compile(r"(?:19|20)\d\d(?:[01]?\d(?:[0-3]?\d)?)?|[0-3]?\d[01]?\d(?:19|20)\d\d")
_LETTERS = re.compile(r"\w(?:[\s.,;:|/_*-]{1,2}\w(?!\w)){4,}")
_TOKEN = re.compile(r"[^\W_]{10,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_HEX_NUMBER = re.compile(r"0x([0-9a-fA-F]{2,16})\b")
_BARE_HEX = re.compile(r"\b(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{4,12}\b")
_BINARY = re.compile(r"\b[01]{8,64}\b")
_ESCAPE = re.compile(r"\\(?:u|x|U000)([0-9a-fA-F]{2,5})")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
_HEX_JOINTS = str.maketrans("", "", " \t\r\n:,-")
_CODES = re.compile(r"(?:\b(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6])\b[\s,;]*){4,}")
_BITS = re.compile(r"\b[01]{8}\b")
_OCTAL = re.compile(r"(?<![\d])[01][0-7]{2}(?![\d])")
_BASE85 = re.compile(r"[!-~]{10,400}")
_ROT47 = {code: 33 + (code - 33 + 47) % 94 for code in range(33, 127)}
_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\U000e0000-\U000e01ef]{3,}")
_WORD = re.compile(r"[^\W_]+")
_NUMERAL = re.compile("[〇零一二三四五六七八九]{4,}")
_MAX_DIGIT = 8
_MIXED = re.compile(r"[A-Za-z][\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff][A-Za-z]")
_DRAWN = re.compile("[\U0001f130-\U0001f189\U0001f1e6-\U0001f1ff\u2800-\u28ff]{3,}")
_MORSE = re.compile(r"[.\-·–−]{1,6}(?:[ /]{1,3}[.\-·–−]{1,6}){4,}")
_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")


class Leaks:
    """Looks for what stands in one text and not in another."""

    def __init__(self, secret: str, allowed: str) -> None:
        """Take the texts.

        Args:
            secret: What may not be told.
            allowed: What may be told, and what was said anyway.
        """
        self._secret = secret
        self._allowed = allowed

    @cached_property
    def _secret_tight(self) -> str:
        return tight(self._secret)

    @cached_property
    def _allowed_tight(self) -> str:
        return tight(self._allowed)

    @cached_property
    def _secret_numbers(self) -> str:
        return "|".join(_numbers(self._secret))

    @cached_property
    def _allowed_numbers(self) -> str:
        return "|".join(_numbers(self._allowed))

    def first(self, text: str) -> str:
        """Return the first thing in a text that was read elsewhere; empty if there is none."""
        if not self._secret.strip():
            return ""
        if len(text) > _MAX_TEXT:
            return text[:40]
        forms = [text, *_unescaped(text)]
        numbers = (number for form in forms for number in _numbers(form))
        for number in (*numbers, *_spelled_numbers(text)):
            if self._is_secret_number(number):
                return number
        disguise = _disguise(text)
        if disguise:
            return disguise
        plainly = tight(text)
        words = (tight(word) for form in forms[1:] for word in form.split())
        for word in (*(one for one in words if one not in plainly), *_hidden_words(text)):
            if len(word) >= _MIN_WORD and self._is_secret(word):
                return word
        return self._backwards(text)

    def _is_secret_number(self, number: str) -> bool:
        if number in self._allowed_numbers:
            return False
        return any(one in self._secret_numbers for one in (number, number[::-1]))

    def _is_secret(self, word: str) -> bool:
        return word in self._secret_tight and word not in self._allowed_tight

    def _backwards(self, text: str) -> str:
        """Return a piece that is written backwards, or with shifted letters."""
        seen = tight(text)
        step = 1 if len(seen) <= 400 else _PIECE
        for form in (seen[::-1], seen.translate(_ROT13)):
            for start in range(0, len(form) - _PIECE + 1, step):
                piece = form[start : start + _PIECE]
                if self._is_secret(piece) and piece != piece[::-1]:
                    return piece
        return ""


def _numbers(text: str) -> Iterator[str]:
    """Yield numbers by their digits alone; dates and short ones tell nothing."""
    seen = unicodedata.normalize("NFKC", text) if not text.isascii() else text
    for match in _DIGITS.finditer(seen):
        digits = tight(match.group())
        if len(digits) >= _MIN_DIGITS and not _MOMENT.fullmatch(digits):
            yield digits
    for match in _HEX_NUMBER.finditer(seen):
        yield str(int(match.group(1), 16))
    for match in _BARE_HEX.finditer(seen):
        yield str(int(match.group(), 16))
    for match in _BINARY.finditer(seen):
        yield str(int(match.group(), 2))


def _unescaped(text: str) -> Iterator[str]:
    """Yield what escapes of a text stand for."""
    if "%" in text:
        yield unquote(text)
    if "&" in text:
        yield html.unescape(text)
    if "\\" in text:
        yield _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), text)


def _spelled_numbers(text: str) -> Iterator[str]:
    """Yield digits that are spelled in words, or set apart among other words."""
    run = ""
    for word in _WORD.findall(_NUMERAL.sub(lambda match: " ".join(match.group()), text)):
        digit = digit_of(word) if len(word) <= _MAX_DIGIT else ""
        if digit:
            run += digit
            continue
        if len(run) >= _MIN_DIGITS:
            yield run
        run = ""
    if len(run) >= _MIN_DIGITS:
        yield run
    single = [word for word in _WORD.findall(text) if any(map(str.isdigit, word))]
    if len(single) >= _MIN_DIGITS and all(len(word) == 1 for word in single):
        yield tight("".join(single))


def _disguise(text: str) -> str:
    """Return what nobody writes but to hide something: mixed alphabets, drawn letters, Morse."""
    for pattern in (_MIXED, _DRAWN, _MORSE, _INVISIBLE):
        found = pattern.search(text)
        if found is not None:
            return found.group()
    return ""


def _hidden_words(text: str) -> Iterator[str]:
    """Yield what a text says in disguise: spelled out, run together or encoded."""
    for match in _LETTERS.finditer(text):
        yield tight(match.group())
    for match in _TOKEN.finditer(text):
        word = match.group()
        if len(word) >= _MIN_RUN_TOGETHER and _is_run_together(word):
            yield tight(word)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) >= _MIN_WORD:
        yield tight("".join(line[0] for line in lines))
    yield from _encoded_words(text)


def _encoded_words(text: str) -> Iterator[str]:
    """Yield what is encoded in a text, in the ways that programs encode."""
    squeezed = "".join(text.split())
    for run in _BASE64.findall(squeezed):
        yield from _decoded(run)
    for run in _HEX.findall(text.translate(_HEX_JOINTS)):
        for start in (0, 1):
            end = start + (len(run) - start) // 2 * 2
            yield from _words_of(bytes.fromhex(run[start:end]))
    bits = "".join(_BITS.findall(text))
    if bits:
        yield from _words_of(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    octal = _OCTAL.findall(text)
    if len(octal) >= 4:
        yield from _words_of(bytes(int(one, 8) for one in octal))
    for run in _BASE85.findall(text):
        for decode in (base64.b85decode, base64.a85decode):
            with contextlib.suppress(ValueError):
                yield from _words_of(decode(run))
    yield from _words_of(text.translate(_ROT47).encode("ascii", "ignore"))
    for match in _CODES.finditer(text):
        yield from _words_of(bytes(int(one) for one in re.findall(r"\d+", match.group())))


def _is_run_together(word: str) -> bool:
    """Tell whether a word is too long to be one, or has capitals or digits in its middle."""
    return len(word) >= 14 or bool(re.search(r"[a-z][A-Z0-9]|\d[A-Za-z]", word))


def _decoded(run: str) -> Iterator[str]:
    standard = run.translate(str.maketrans("-_", "+/")).rstrip("=")
    for start in range(4):
        part = standard[start:]
        part = part[: len(part) - (len(part) % 4 == 1)]
        try:
            yield from _words_of(base64.b64decode(part + "=" * (-len(part) % 4)))
        except binascii.Error:
            continue


def _words_of(data: bytes) -> Iterator[str]:
    """Yield the readable parts of what was decoded."""
    for run in re.findall(rb"[\x20-\x7e]{4,}", data):
        text = run.decode("ascii")
        yield from _numbers(text)
        yield tight(text)
        yield from (tight(word) for word in text.split())


_MAX_CLOSING = 5
"""Words that may stand behind a dictated text, on one or two lines of their own."""
MARKS = " .,:;!?\"'。！？、।，؛،؟…"
_DICTATED_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def is_signature(lines: str, closing: str) -> bool:
    """Tell whether what closes a text stands on one or two lines of its own, and is short."""
    if word_count(closing) > _MAX_CLOSING:
        return False
    last = [line.strip() for line in lines.splitlines() if line.strip(MARKS)]
    ends = (" ".join(last[-count:]).strip(MARKS) for count in (1, 2) if count < len(last))
    return closing in ends


def is_ending(closing: str) -> bool:
    """Tell whether a few signs are a polite ending, in scripts where it is glued to the last word.

    Not one that denies: in Japanese that stands at the end, too.
    """
    signs = closing.strip(MARKS)
    return len(signs) <= 3 and word_count(signs) <= 2 and not signs.isascii() and "な" not in signs


def spread(said: str, parts: Sequence[str]) -> tuple[int, int]:
    """Return from where to where the dictated parts of a text reach."""
    first = min(said.find(part) for part in parts)
    return first, max(said.find(one) + len(one) for one in parts)


def reported(dictated: str, text: str) -> str:
    """Return what of a text says in its own words just what was dictated; empty if nothing does.

    People dictate in reported speech: "tell Lena that the parcel is there". Each word must have a
    counterpart that is the same but for its ending, in any order, and no other word may stand
    among them: it might turn the sense around.
    """
    wanted, words = _DICTATED_WORD.findall(dictated), _DICTATED_WORD.findall(text)
    places: set[int] = set()
    for one in wanted:
        place = next(
            (at for at, word in enumerate(words) if at not in places and inflects(one, word)), None
        )
        if place is None:
            place = _taken_apart(one, words, places)
        if place is None:
            return ""
        places.add(place)
    if not places or len(wanted) < 2:
        return ""
    first, last = min(places), max(places)
    if any(at not in places for at in range(first, last + 1)):
        return ""
    matches = list(_DICTATED_WORD.finditer(text))
    return text[matches[first].start() : matches[last].end()]


def inflects(one: str, other: str) -> bool:
    """Tell whether two words are the same, or the same but for their ending."""
    if one == other:
        return True
    if "'" in one + other or "’" in one + other or any(map(str.isdigit, one + other)):
        return False
    shorter = min(len(one), len(other))
    stem = max(3, -(-2 * shorter // 3))
    return shorter >= 3 and abs(len(one) - len(other)) <= 4 and one[:stem] == other[:stem]


def _taken_apart(one: str, words: Sequence[str], places: set[int]) -> int | None:
    """Find a verb whose first part stands apart: `annehme` as `nehme … an`. Marks both places."""
    for at, word in enumerate(words):
        if at in places or len(word) < 3:
            continue
        for cut in range(2, len(one) - 2):
            if not inflects(one[cut:], word):
                continue
            apart = next(
                (k for k, w in enumerate(words) if w == one[:cut] and k not in places), None
            )
            if apart is not None:
                places.add(apart)
                return at
    return None
