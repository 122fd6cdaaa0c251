"""Provenance: does a call still match the request, after everything that was read?

Structure is compared with structure. The kind of effect must be one that was requested. Each target
and each amount must be a literal of the request, be linked to a literal by a record that only the
owner's side can write, or be found in a place that the request names. Texts are judged like
targets.
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
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

from asterism.permissions.intent import FOLLOW, Intent, LookupKind, LookupValue, TrustedText
from asterism.permissions.readings import (
    MAX_QUOTED,
    ReadContent,
    Record,
    amounts_in_literal,
    amounts_in_text,
    computed_amounts,
    contains_name,
    currencies_in,
    currency_of,
    digit_of,
    equal,
    excerpt,
    is_among,
    long_words,
    pieces_of,
    plain,
    replace_lookalikes,
    same,
    separate_sentences,
    squeeze,
    tight,
    word_count,
)
from asterism.records import dataclass
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
"""Reading is judged by who sees the result; the gate of memory judges new memories."""
_ALSO_WRITTEN = frozenset({EffectKind.PAY, EffectKind.SEND})
"""To post is to send and to write, to book is to pay and to write. A request for one of them
includes the record that it makes, but never a file; a request to write includes nothing else."""
_NEEDS_TARGET = frozenset({EffectKind.SEND, EffectKind.DELETE, EffectKind.PAY, EffectKind.GRANT})
"""Many tools read a missing target as "all"."""
_SHOWN = 80
_MAX_VALUE = 4_000
_MAX_CONTENT = 200_000
"""Characters: a person judges longer texts, so that no input can block the gate."""
_MAX_TELLING = 200
"""A person judges texts with more values."""
_MAX_SHORT_WORDS = 8
"""A value with more words is a text, not the new value of a field."""
_MAX_GREETING = 2
"""New words that are allowed before a dictated text, such as a greeting."""
_MAX_SUBJECT = 5
"""Words that are allowed in another field, such as a subject."""
_MAX_TITLE = 4
"""Words: a longer field is a text that may mention anything."""
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
    """Everything that trusted people said and that was read before a call."""

    def __init__(self, text: TrustedText) -> None:
        self.text = text
        self.readings: list[ReadContent] = []
        self._plain: tuple[TrustedText, str] | None = None
        self.requested_at = 0
        """The number of readings when the latest request came in."""
        self.pending: Sequence[Effect] = ()
        """Effects of calls that were allowed and have not returned yet."""
        self._known: dict[Any, Any] = {}
        self._counted = 0

    def cached(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return the cached value for a key; a new reading clears the cache."""
        if self._counted != len(self.readings):
            self._known.clear()
            self._counted = len(self.readings)
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def read(self, reading: ReadContent) -> None:
        """Add the result of a tool, or a text of somebody who is not trusted."""
        self.readings.append(reading)

    @property
    def trust(self) -> Trust:
        """The lowest trust of all readings."""
        return least_trusted(reading.trust for reading in self.readings)

    def is_in_trusted_text(self, value: str) -> bool:
        """Tell whether a value is written in the trusted text, letter by letter."""
        return contains_name(plain(value), self._trusted_plain)

    @property
    def _trusted_plain(self) -> str:
        text = self.text
        if self._plain is None or self._plain[0] is not text:
            trusted = text.everything
            self._plain = (text, plain(f"{trusted}\n{separate_sentences(trusted)}"))
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

    def untrusted_reading_with(self, value: str) -> ReadContent | None:
        """Return the untrusted reading that contains a value."""
        if len(value) > _MAX_VALUE:
            return None
        for reading in self.readings:
            if not reading.trust.trusted and reading.brings(value):
                return reading
        return None

    def reasons(self, what: str, value: str = "") -> tuple[DoubtReason, ...]:
        """Return how untrusted text led to a part of a call."""
        reading = self.untrusted_reading_with(value) if value else None
        if reading is not None:
            where = excerpt(value, reading.text)
            return (DoubtReason(what, str(reading), reading.trust.value, where, reading.name),)
        for untrusted in reversed(self.readings):
            if not untrusted.trust.trusted and untrusted.text.strip():
                return (
                    DoubtReason(
                        what,
                        str(untrusted),
                        untrusted.trust.value,
                        excerpt("", untrusted.text),
                        untrusted.name,
                    ),
                )
        return ()


def judge(evidence: Evidence, intents: Sequence[Intent], effects: Iterable[Effect]) -> Doubt | None:
    """Return why a call does not match the request, or None if it does.

    Call it only after something untrusted was read: before that, no call needs a justification.
    """
    call = tuple(effects)
    leaves = any(effect.kind is EffectKind.SEND and not _tells_owner(effect) for effect in call)
    for declared in call:
        # A file that is read in order to be sent is sent as well.
        sent = declared.kind is EffectKind.READ and leaves and bool(declared.paths)
        effect = replace(declared, kind=EffectKind.SEND) if sent else declared
        if effect.kind not in JUDGED or _tells_owner(effect):
            continue
        doubt = _judge_effect(evidence, intents, effect, call)
        if doubt is not None:
            return doubt
    return None


def _tells_owner(effect: Effect) -> bool:
    return effect.kind is EffectKind.SEND and set(effect.targets) == {OWNER}


def _judge_effect(
    evidence: Evidence, intents: Sequence[Intent], effect: Effect, call: tuple[Effect, ...]
) -> Doubt | None:
    if _tells_nobody(effect, call):
        return None
    missing = _missing_argument(effect)
    if missing:
        return Doubt(f"it would {_effect_phrase(effect.kind)}, but does not say {missing}")
    # A request for a payment or for access includes the note that goes with it.
    with_note = (EffectKind.PAY, EffectKind.GRANT)
    kinds = {effect.kind, *(part.kind for part in call if part.kind in with_note)}
    fitting = [intent for intent in intents if _fits(intent, effect, kinds)]
    if effect.kind is EffectKind.FETCH:
        if _was_fetched_before(evidence, effect) or _is_linked_page(evidence, intents, effect):
            return None
        if not effect.targets and effect.content:
            return _Judgement(evidence, fitting, Intent(EffectKind.FETCH), effect).query()
    doubts = [_Judgement(evidence, fitting, intent, effect).doubt() for intent in fitting]
    if None in doubts:
        return _paid_already(evidence, fitting, effect, doubts.count(None))
    first = next(iter(doubts), None)
    if first is not None:
        return first
    return Doubt(
        f"it would {_effect_phrase(effect.kind)}, but it is not clear that a trusted person asked "
        "for it",
        evidence.reasons(effect.kind.value, next(iter(effect.targets), "")),
    )


def _paid_already(
    evidence: Evidence, fitting: Sequence[Intent], effect: Effect, covering: int
) -> Doubt | None:
    """Doubt a payment that was already made for this request: a request is fulfilled once.

    Args:
        evidence: Everything that was read, with the payments made.
        fitting: Intents that ask for payments.
        effect: The payment.
        covering: How many of them ask for exactly this payment.
    """
    if effect.kind is not EffectKind.PAY or not effect.recipients:
        return None

    def effects_for(payment: Effect) -> set[int]:
        return {
            place
            for place, intent in enumerate(fitting)
            if _Judgement(evidence, fitting, intent, payment).is_for_these()
        }

    requested = effects_for(effect)
    paid = [
        payment.amount
        for payment in evidence.paid_since_request()
        if requested & effects_for(payment)
    ]
    if paid.count(effect.amount) < covering and len(paid) < len(requested):
        return None
    return Doubt(
        "it would pay a recipient again who was already paid for this request",
        evidence.reasons(effect.kind.value, effect.recipients[0]),
    )


def _fits(intent: Intent, effect: Effect, kinds: set[EffectKind]) -> bool:
    """Tell whether an effect of a call is of a kind that was asked for."""
    if intent.kind == FOLLOW:
        # A text that the request names may say what to write and to send, and how to change an
        # existing order; never whom to pay, or what to delete, run or share.
        pays = effect.kind is EffectKind.PAY and not effect.recipients and not effect.hosts
        return pays or effect.kind in (EffectKind.SEND, EffectKind.WRITE)
    if effect.kind is EffectKind.UNDECLARED or intent.kind in kinds:
        return True
    kind = EffectKind(intent.kind)
    return effect.kind is EffectKind.WRITE and not effect.paths and kind in _ALSO_WRITTEN


def _tells_nobody(effect: Effect, call: tuple[Effect, ...]) -> bool:
    """Tell whether a call sends nothing, because its purpose is another effect."""
    others = [other for other in call if other is not effect and other.kind.outside]
    return effect.kind is EffectKind.SEND and not effect.targets and bool(others)


def _missing_argument(effect: Effect) -> str:
    """Return in words which important argument a call does not have."""
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


def _is_linked_page(evidence: Evidence, intents: Sequence[Intent], effect: Effect) -> bool:
    """Tell whether a closed place that the request names links to the page."""
    for intent in intents:
        judgement = _Judgement(evidence, intents, intent, effect)
        for lookup in intent.found:
            if not lookup.where:
                continue
            for spot in judgement.direct_spots(lookup):
                if not (spot.identified and spot.reading.closed):
                    continue
                links = links_in(spot.record.prose)
                if effect.hosts and all(
                    any(_same_address(link, host) for link in links) for host in effect.hosts
                ):
                    return True
    return False


def _was_fetched_before(evidence: Evidence, effect: Effect) -> bool:
    """Tell whether the same address was fetched before in this context: it learns nothing new."""
    if not effect.hosts or effect.content:
        return False
    known = {place for reading in evidence.readings for place in reading.places}
    return all(host in known for host in effect.hosts)


@dataclass(slots=True)
class _Spot:
    """A record where a value may be found."""

    reading: ReadContent
    record: Record
    rank: tuple[int, int] = (0, 0)
    """How many literals of the request name its place or are fields that the system wrote, and how
    many are fields that others wrote."""
    known: int = 0
    """How many literals are fields that the system wrote."""
    in_text: bool = False
    """Whether a literal of the request is only in text that anybody may have written."""
    identified: bool = True
    """Whether the request says which record it is, among others."""


class _Judgement:
    """Compares one effect of a call with one intent of the request."""

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
            return self._check_undeclared()
        if self.kind is EffectKind.RUN:
            return self._check_exact_text((*self.effect.targets, *self.effect.content))
        return (
            self._check_payees()
            or self._check_targets()
            or self._check_amount()
            or self._check_content()
        )

    def is_for_these(self) -> bool:
        """Tell whether the request names these targets, whatever the amount."""
        return self._check_targets() is None

    def _doubt(self, what: str, value: str, why: str) -> Doubt:
        cut = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
        named = f"{what} {cut!r}" if value else what
        reasons = self.evidence.reasons(named, value)
        return Doubt(f"it would {_effect_phrase(self.kind)}, and {named} {why}", reasons)

    def _doubt_unrequested(self, what: str, value: str) -> Doubt:
        brought = self.evidence.untrusted_reading_with(value) if len(value) > 2 else None
        if brought is not None:
            return self._doubt(what, value, f"appears only in the result of {brought.tool}")
        return self._doubt(what, value, "is not part of the request")

    # -- to whom and to what -----------------------------------------------------------------------

    def _check_payees(self) -> Doubt | None:
        """Doubt more payees than requested, or a payment in place of a change to an order."""
        effect = self.effect
        if effect.kind is not EffectKind.PAY or not effect.recipients:
            return None
        if len(effect.recipients) > max(1, len(self.intent.targets)):
            return self._doubt("so many recipients", "", "are not part of the request")
        orders = any(lookup.what is LookupKind.ID for lookup in self.intent.found)
        if orders and not effect.things:
            return self._doubt("a separate payment", "", "is not part of the request")
        return None

    def _check_targets(self) -> Doubt | None:
        effect = self.effect
        if any(len(target) > _MAX_VALUE for target in effect.targets):
            return self._doubt("a name of this length", "", "cannot be judged")
        for recipient in effect.recipients:
            if recipient != OWNER and not self._is_requested(_address_alone(recipient), _PEOPLE):
                return self._doubt_unrequested("recipient", recipient)
        for address in effect.hosts:
            if not self._is_requested_address(address):
                return self._doubt_unrequested("address", address)
        for path in effect.paths:
            if not self._is_requested_path(path):
                return self._doubt_unrequested("path", path)
        for thing in effect.things:
            if not self._is_requested(thing, _THINGS) or self._has_two_roles(thing):
                return self._doubt_unrequested("thing", thing)
        return None

    def _has_two_roles(self, thing: str) -> bool:
        """Tell whether one literal is used both as the recipient and as the thing."""
        if self.kind is EffectKind.PAY:
            # `within` says which of two accounts pays and which is paid.
            return bool(self.effect.recipients) and is_among(thing, self.intent.targets)
        if self.kind is not EffectKind.GRANT:
            return False
        return any(
            equal(thing, target) and self._is_recipient(target) and not equal(thing, recipient)
            for target in self.intent.targets
            for recipient in self.effect.recipients
        ) or any(map(_is_path, self.effect.recipients))

    def _is_requested(self, value: str, kinds: frozenset[LookupKind]) -> bool:
        """Tell whether a value is a literal of the request, is linked to one, or is looked up."""
        if self.intent.kind == FOLLOW:
            return self._names_followed(value, kinds)
        pooled = self._pooled
        literals = [target for intent in pooled for target in intent.targets]
        things = kinds is _THINGS
        if things and self.kind is not EffectKind.DELETE:
            literals += [container for intent in pooled for container in intent.within]
        if self.kind is EffectKind.DELETE and self._is_container(value):
            return False
        if any(self._is_literal(value, literal) for literal in literals):
            return True
        if self.kind is EffectKind.PAY and not things and self._is_own_account(value):
            return True
        if any(is_among(value, self._stands_for(literal, things=things)) for literal in literals):
            return True
        return any(
            lookup.what in kinds and self._is_found(lookup, value)
            for intent in pooled
            for lookup in intent.found
        )

    def _is_own_account(self, value: str) -> bool:
        """Tell whether an account belongs to the order that the call changes."""
        return bool(self.effect.things) and any(
            is_among(value, record.accounts) and all(map(record.holds, self.effect.things))
            for reading in self.evidence.readings
            for record in reading.records
        )

    @property
    def _pooled(self) -> Sequence[Intent]:
        """Intents of one kind that may together name the guests of one appointment or mail."""
        if self.kind not in (EffectKind.SEND, EffectKind.WRITE) or len(self.effect.recipients) < 2:
            return (self.intent,)
        own = self.intent
        return [
            intent
            for intent in self.fitting
            if (intent.content, intent.found) == (own.content, own.found)
        ]

    def _is_literal(self, value: str, literal: str) -> bool:
        if self.kind is EffectKind.PAY and value.strip()[:1] == "@" != literal.strip()[:1]:
            return False  # a handle is an account, a name is not
        return equal(value, literal) or equal(value, _address_alone(literal))

    def _is_container(self, value: str) -> bool:
        """Tell whether a value is the container of the things to delete, not one of them."""
        targets = self.intent.targets
        return not _is_path(value) and any(map(_is_path, targets)) and "/" not in value

    def _names_followed(self, value: str, kinds: frozenset[LookupKind]) -> bool:
        """Tell whether the request names a person, or the followed text names a thing."""
        if self.evidence.is_in_trusted_text(value):
            return True
        if kinds is _THINGS:
            return self._is_followed(value)
        return any(is_among(value, self._stands_for(word)) for word in self._words_of_request)

    @cached_property
    def _words_of_request(self) -> list[str]:
        words = re.findall(r"[^\W\d_][\w.'-]{1,60}", self.evidence.text.request[:_MAX_VALUE])
        return [word for word in words if word[:1].isupper()]

    def _is_followed(self, value: str) -> bool:
        """Tell whether the followed text names a thing."""
        return any(record.holds(value) for record in self._followed)

    @cached_property
    def _texts_followed(self) -> list[str]:
        return [
            spot.record.plain_prose for lookup in self.intent.found for spot in self._spots(lookup)
        ]

    @cached_property
    def _followed(self) -> list[Record]:
        """Records that the followed text mentions."""
        return [
            record
            for reading in self.evidence.readings
            for record in reading.records
            if any(
                len(value) >= 4 and value[0].isalpha() and contains_name(value, text)
                for value in record.values
                for text in self._texts_followed
            )
        ]

    def _stands_for(self, literal: str, *, things: bool = False) -> set[str]:
        """Return the values that a name is linked to by records only the owner's side can write.

        The id of a thing may also be in the only record in which a system itself has the name.
        """
        key = (literal, things, self.kind is EffectKind.PAY)
        return self.evidence.cached(key, lambda: self._find_names(literal, things))

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
                if any(same(wanted, value) for value in whole):
                    exact.append(record)
                elif any(_begins_name(wanted, name) for name in record.names) or (
                    things
                    and any(contains_name(wanted, value) for value in whole if len(value) <= 80)
                ):
                    partly.append(record)
                elif any(_is_declined(wanted, name) for name in record.names):
                    declined.append(record)
        # A name that several records share is linked to none of them.
        records = exact or partly or declined
        distinct = {frozenset(record.values) for record in records}
        if len(distinct) != 1:
            return set()
        payee = self.kind is EffectKind.PAY and not things
        if not payee:
            return set(records[0].raw)
        # A tool that gets a name looks up the account itself.
        names = (name for name in records[0].raw if plain(name) in records[0].names)
        return {*_accounts(records[0]), *names}

    def _is_found(self, lookup: LookupValue, value: str) -> bool:
        """Tell whether a value is in the place where the request says to look."""
        spots = list(self._spots(lookup))
        if self.kind is EffectKind.PAY:
            return self._is_payee(lookup, spots, value)
        if self.kind is EffectKind.RUN:
            return False
        having = [spot.record.holds(value) for spot in spots if spot.identified]
        if any(having) and not all(having) and not lookup.every:
            return False  # several records match, and the request does not say which one
        for spot in spots:
            reading, record, identified = spot.reading, spot.record, spot.identified
            if self.kind is EffectKind.DELETE and value.strip() not in record.raw:
                continue
            if not self._is_theirs(lookup, record, value):
                continue
            if record.holds(value) and (identified or (reading.closed and self._may_choose())):
                return True
            if (
                contains_name(plain(value), record.trusted_text)
                and reading.owned
                and (identified or self._may_choose())
            ):
                return True
            # Text in a place that the request names may say who, but never whom to pay or delete.
            # Where a system records authors and members, their text names nobody.
            declared = bool(reading.results.fields) and not reading.closed
            in_text = bool(lookup.where) and identified and not declared
            in_text = in_text and self.kind is not EffectKind.DELETE
            if in_text and self._stands_in_text(lookup, value, record):
                return True
        return False

    def _is_theirs(self, lookup: LookupValue, record: Record, value: str) -> bool:
        """Tell whether an address belongs to the person whose name identifies its record.

        A mail that is addressed to Ann is not from her. A person in the owner's contacts has the
        address that is written there.
        """
        if lookup.what is not LookupKind.ADDRESS or "@" not in value:
            return True
        for literal in lookup.where:
            known = [contact for contact in self._in_contacts(literal) if "@" in contact]
            if known and not is_among(value, known):
                return False
            named = [value for value in record.raw if _names_value(plain(literal), plain(value))]
            if named and all("@" in value for value in named) and not is_among(value, named):
                return False
        return True

    def _in_contacts(self, literal: str) -> list[str]:
        """Return the values of the owner's records about a person with this name."""
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
        """Tell whether any one of several matching records may be used."""
        return self.kind is not EffectKind.DELETE

    def _stands_in_text(self, lookup: LookupValue, value: str, record: Record) -> bool:
        if lookup.what is LookupKind.ADDRESS:
            there = {plain(link) for link in links_in(record.prose)}
            there |= {plain(account) for account in _ACCOUNT.findall(record.prose)}
            return is_among(value, there)
        if lookup.what is LookupKind.NAME:
            return bool(value.strip()) and contains_name(plain(value), record.plain_prose)
        return False

    def _is_payee(self, lookup: LookupValue, spots: Sequence[_Spot], value: str) -> bool:
        """Tell whether the bank's fields or the owner's records give this payee, and no other."""
        identified = [spot for spot in spots if spot.identified]
        if value in self.effect.things:
            # A thing that is ordered, not a payee.
            return any(
                spot.record.holds(value)
                or (
                    lookup.where and lookup.what is LookupKind.NAME and _in_text(spot.record, value)
                )
                for spot in identified
            )
        payees = {frozenset(_accounts(spot.record)) for spot in identified}
        payees -= {frozenset[str]()}
        if not any(is_among(value, accounts) for accounts in payees):
            return False
        if len(payees) == 1:
            return True
        # Several records of one payee count as one payee: the accounts that all of them have.
        common = set[str]().union(*payees).intersection(*payees)
        return is_among(value, common)

    def _spots(self, lookup: LookupValue) -> list[_Spot]:
        """Return the records in which to look for a value, and the pages that they link to."""
        return [*self.direct_spots(lookup), *self._linked(lookup)]

    def direct_spots(self, lookup: LookupValue) -> list[_Spot]:
        """Return the records in which to look for a value: the best matches for the request."""
        return self.evidence.cached((lookup, self.kind), lambda: self._find_spots(lookup))

    def _find_spots(self, lookup: LookupValue) -> list[_Spot]:
        """Return the records in which to look for a value: the best matches for the request.

        A literal of the request identifies a record if the system or the owner's side wrote it. In
        text that anybody wrote, it only identifies which one thing of the owner's to change.
        """
        spots: list[_Spot] = []
        mentions = _in_title if self.kind is EffectKind.DELETE else _in_text
        for reading in self.evidence.readings:
            if lookup.source and plain(lookup.source) != plain(reading.source):
                continue
            about = [literal for literal in lookup.where if reading.is_about(literal)]
            if not lookup.source and not about:
                continue
            rest = [literal for literal in lookup.where if literal not in about]
            for record in reading.records:
                surely = [literal for literal in rest if self._record_has(record, literal)]
                in_text = [
                    literal
                    for literal in rest
                    if literal not in surely and mentions(record, literal)
                ]
                if len(surely) + len(in_text) == len(rest):
                    pays = self.kind is EffectKind.PAY
                    exactly = sum(
                        _is_part(record, literal) for literal in (in_text if pays else rest)
                    )
                    rank = (len(about) + len(surely), exactly)
                    spots.append(_Spot(reading, record, rank, len(surely), bool(in_text)))
        best = max((spot.rank for spot in spots), default=(0, 0))
        if lookup.what is not LookupKind.TEXT:
            spots = [spot for spot in spots if spot.rank == best]
        else:
            spots = [spot for spot in spots if spot.rank[0] == best[0]]
        changes = self.kind in (EffectKind.WRITE, EffectKind.DELETE) and len(spots) == 1
        for spot in spots:
            named = spot.rank[0] > 0 and not spot.in_text
            spot.identified = (
                spot.known > 0 or named or changes or (spot.in_text and spot.reading.closed)
            )
        return spots

    def _linked(self, lookup: LookupValue) -> Iterator[_Spot]:
        """Yield pages that a place named by the request links to."""
        if lookup.what is LookupKind.LINK or not lookup.where:
            return
        for reading in self.evidence.readings:
            if reading.trust is not Trust.WEB or not reading.places:
                continue
            for other in self.evidence.readings:
                if other is reading or (
                    lookup.source and plain(lookup.source) != plain(other.source)
                ):
                    continue
                leads = any(_same_address(link, reading.places[0]) for link in other.links)
                if leads and all(
                    other.is_about(literal)
                    or any(self._record_has(r, literal) for r in other.records)
                    for literal in lookup.where
                ):
                    for record in reading.records:
                        yield _Spot(reading, record, (1, 0))

    def _record_has(self, record: Record, literal: str) -> bool:
        wanted = plain(literal)
        if any(_names_value(wanted, value) for value in record.values):
            return True
        amounts = amounts_in_literal(literal) if len(literal) <= 32 else ()
        if len(amounts) == 1 and round(amounts[0], 2) in record.numbers:
            return True
        return any(record.holds(name) for name in self._stands_for(literal))

    # -- paths and addresses -----------------------------------------------------------------------

    def _is_requested_path(self, path: str) -> bool:
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
            lookup.what in (LookupKind.PATH, LookupKind.NAME) and self._is_found(lookup, path)
            for lookup in self.intent.found
        ):
            return True
        if self.intent.kind == FOLLOW and self.kind is EffectKind.WRITE:
            return not path.startswith(("/", "~", "..", "$")) and any(
                contains_name(plain(path), text) for text in self._texts_followed
            )
        coins = self.kind is EffectKind.WRITE and not any(map(_is_path, self.intent.targets))
        return coins and self._is_new(path) and self.evidence.untrusted_reading_with(path) is None

    def _is_named_place(self, path: str) -> bool:
        """Tell whether the request names a file to send or to take a text from."""
        wanted = plain_path(path)
        literals = [literal for lookup in self.intent.found for literal in lookup.where]
        return wanted is not None and wanted in [plain_path(literal) for literal in literals]

    def _is_new(self, path: str) -> bool:
        """Tell whether a path that nobody named can only be a new file of the agent.

        A word of it must be in the request, so that it does not overwrite an existing file.
        """
        name = posixpath.normpath(path.replace("\\", "/"))
        if name.startswith(("/", "~", "..")) or ":" in name:
            return False
        if any(part.startswith(".") and part != "." for part in name.split("/")):
            return False
        words = re.findall(r"[^\W\d_]{3,}", posixpath.splitext(posixpath.basename(name))[0])
        return any(self.evidence.is_in_trusted_text(word) for word in words)

    def _is_in_named_folder(self, path: str) -> bool:
        """Tell whether a file is in the folder that is named, or in the only one that has it."""
        folder, _, name = path.rpartition("/")
        if _is_path(posixpath.basename(folder)):
            return False
        if not folder or not any(
            same(plain(name), plain(target)) for target in self.intent.targets
        ):
            return False
        named = (*self.intent.targets, *self.intent.within)
        if (
            all(any(part == name for name in named) for part in folder.split("/"))
            or folder in named
        ):
            return True
        having = {
            plain_path(place)
            for reading in self.evidence.readings
            if reading.results.fields
            for place in reading.places
            if any(record.holds(name) for record in reading.records)
        }
        return having == {folder}

    def _is_requested_address(self, address: str) -> bool:
        """Tell whether an address was named, or is a link in a place that the request names."""
        parts = address_of(address)
        if parts is None or parts.user is not None:
            return False
        fragment = parts.rest.partition("#")[2]
        if fragment and self.evidence.untrusted_reading_with(fragment) is not None:
            return False
        if any(
            _same_address(literal, address) or self._is_on_host(literal, address, parts)
            for literal in self.intent.targets
        ):
            return True
        for lookup in self.intent.found:
            if lookup.what not in (LookupKind.LINK, LookupKind.ADDRESS):
                continue
            for spot in self._spots(lookup):
                page = spot.reading.trust is Trust.WEB
                links = spot.reading.links if page else spot.record.links
                if spot.identified and any(_same_address(link, address) for link in links):
                    return True
        return False

    def _is_on_host(self, literal: str, address: str, parts: Address) -> bool:
        """Tell whether a host is named, and an address on it contains nothing that was read."""
        named = address_of(literal)
        if named is None or named.rest.strip("/") or not _same_host(named.host, parts.host):
            return False
        if parts.scheme not in ("", "http", "https", named.scheme):
            return False
        if (parts.port or None) != (named.port or None):
            return False
        return self._is_plain(parts.rest) or self._is_linked_from(parts.host, address)

    def _is_plain(self, rest: str) -> bool:
        """Tell whether an address has only words of the request after its host."""
        rest = rest.partition("#")[0]
        if any(sign in rest for sign in "?;@%\\"):
            return False
        parts = [part for part in rest.split("/") if part]
        return all(self.evidence.is_in_trusted_text(part) for part in parts)

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

    def _check_amount(self) -> Doubt | None:
        effect = self.effect
        if effect.amount_unreadable:
            return self._doubt("the amount", "", "cannot be read")
        if effect.amount is None:
            return None
        unit = self._foreign_unit()
        if unit:
            return self._doubt_unrequested("unit", unit)
        amount = round(effect.amount, 2)
        return None if self._is_amount(amount) else self._doubt_unrequested("amount", f"{amount:g}")

    def _is_amount(self, amount: float) -> bool:
        """Tell whether an amount was requested, looked up, or can be computed."""
        literal = self._literal_amounts()
        several = len(self.effect.recipients) > 1
        if self.intent.computed:
            known = {*literal, *numbers_in(self.evidence.text.request)}
            known = known.union(*self._amounts_found())
            return amount in computed_amounts(known, self.intent.computed)
        if amount in literal or (several and amount == round(sum(literal), 2)):
            return True
        recorded, stated = self._amounts_found()
        if self.intent.kind == FOLLOW:
            # A text may set the amount of an existing order, but not to any value.
            most = 2 * max(recorded, default=0.0)
            sums = computed_amounts(recorded | stated, "more") | computed_amounts(
                recorded | stated, "less"
            )
            return amount in recorded or (0 < amount <= most and amount in stated | sums)
        if amount in recorded or amount in stated:
            return True
        # One piece, where the request gives no number.
        return not self.effect.recipients and not self.intent.amounts and amount == 1

    def _literal_amounts(self) -> set[float]:
        """Return the amounts in the request that are for these recipients."""
        amounts = [amounts_in_literal(text) for text in self.intent.amounts]
        targets = self.intent.targets
        if self.kind is EffectKind.PAY and len(targets) > 1 and len(amounts) > 1:
            # Each amount belongs to one payee, in the order in which they are written.
            own = [
                amounts[place]
                for place, target in enumerate(targets)
                if len(amounts) == len(targets) and self._is_recipient(target)
            ]
            amounts = own
        return {round(amount, 2) for group in amounts for amount in group}

    def _is_recipient(self, literal: str) -> bool:
        known = (literal, *self._stands_for(literal))
        return any(is_among(recipient, known) for recipient in self.effect.recipients)

    def _foreign_unit(self) -> str:
        """Return the unit of an amount if the request uses another one."""
        spoken = currencies_in(self.evidence.text.request)
        for unit in self.effect.unit.split():
            if (
                spoken
                and currency_of(unit) not in spoken
                and not self.evidence.is_in_trusted_text(unit)
            ):
                return unit
        return ""

    def _amounts_found(self) -> tuple[set[float], set[float]]:
        """Return amounts that a system records, and those in the text of a named place."""
        recorded: set[float] = set()
        stated: set[float] = set()
        follows = self.intent.kind == FOLLOW
        if follows:
            recorded = {number for record in self._followed for number in record.numbers}
        for lookup in self.intent.found:
            if lookup.what is not LookupKind.AMOUNT and not follows:
                continue
            for spot in self._spots(lookup):
                # Whoever writes into the bank's records has to move that much money.
                recorded |= spot.record.numbers
                if spot.identified and not (spot.reading.owned or spot.reading.results.accounts):
                    stated |= amounts_in_text(spot.record.prose)
        return recorded, stated

    # -- what it contains --------------------------------------------------------------------------

    def _check_content(self) -> Doubt | None:
        if self.kind is EffectKind.GRANT and not self.effect.recipients:
            return self._check_exact_text(self.effect.content)
        own_file = (
            self.kind is EffectKind.WRITE and not self.effect.recipients and self.effect.paths
        )
        for text in self.effect.content:
            if len(text) > _MAX_CONTENT:
                return self._doubt("a text of this length", "", "cannot be judged")
            doubt = self._check_attachment(text) or self._check_links(text, own_file=bool(own_file))
            doubt = doubt or self._check_disclosure(text)
            if not own_file:
                doubt = doubt or self._check_field_value(text)
            if doubt is not None:
                return doubt
        return self._check_dictated_text()

    def _check_attachment(self, text: str) -> Doubt | None:
        """Doubt a file attached to a message, if the request does not name it."""
        if self.kind is not EffectKind.SEND or not _ATTACHED.fullmatch(text.strip()):
            return None
        path = text.strip()
        if self.evidence.is_in_trusted_text(path) or self._is_requested_path(path):
            return None
        return self._doubt_unrequested("file", path)

    def _check_dictated_text(self) -> Doubt | None:
        """Doubt texts that differ from the text that the request dictates."""
        dictated = [plain(text).strip(MARKS) for text in self.intent.content]
        dictated = [text for text in dictated if text]
        if not dictated or any(lookup.what is LookupKind.TEXT for lookup in self.intent.found):
            return None
        if self.kind not in (EffectKind.SEND, EffectKind.WRITE):
            return None
        if self.kind is EffectKind.WRITE and not self.effect.paths:
            return None  # values of fields are judged one by one
        longest = max(dictated, key=len)
        texts = [plain(text) for text in self.effect.content]
        matches = [longest] if any(longest in text for text in texts) else []
        matches = matches or [match for text in texts if (match := reported_part(longest, text))]
        if not matches:
            return self._doubt("the dictated text", "", "is missing")
        for text in self.effect.content:
            doubt = self._check_around_dictated(text, (*dictated, *matches))
            if doubt is not None:
                return doubt
        return None

    def _check_around_dictated(self, text: str, dictated: Sequence[str]) -> Doubt | None:
        """Doubt text before or after a dictated text, except a greeting and a signature."""
        lines = "\n".join(plain(line) for line in text.splitlines())
        parts = [part for part in dictated if part in plain(text)]
        if not parts:
            short = word_count(lines) <= _MAX_SUBJECT and not self._has_new_digits(lines)
            return None if short else self._doubt_unrequested("text", " ".join(lines.split()))
        content = plain(text)
        if content.strip(MARKS) in parts:
            return None
        first, last = spread(content, parts)
        before, after = content[:first], content[last:]
        between = content[first:last]
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
            return self._doubt_unrequested("text", " ".join((before + between + after).split()))
        return None

    def _new_words(self, text: str) -> int:
        """Return how many words of a greeting are neither in the request nor a name."""
        names = " ".join(
            name
            for reading in self.evidence.readings
            for record in reading.records
            for name in record.names
        )
        words = [word.strip(MARKS) for word in text.split() if word.strip(MARKS)]
        new = [
            word
            for word in words
            if not (self.evidence.is_in_trusted_text(word) or contains_name(word, names))
        ]
        return word_count(" ".join(new))

    def _has_new_digits(self, text: str) -> bool:
        """Tell whether a text has numbers that the request does not have."""
        return any(
            any(map(str.isdigit, word)) and not self.evidence.is_in_trusted_text(word.strip(MARKS))
            for word in text.split()
        )

    def _check_exact_text(self, texts: Sequence[str]) -> Doubt | None:
        """Doubt a command or a password that is not exactly the one the owner wrote."""
        dictated = [text.strip("`\"' ") for text in self.intent.content]
        if self.kind is EffectKind.RUN and texts and " ".join(texts).strip() in dictated:
            return None  # a command, maybe as a list of its words
        if not any(text.strip() for text in texts):
            return self._doubt("the dictated text", "", "is missing")
        for text in texts:
            if text not in dictated:
                return self._doubt_unrequested("text", text)
        return None

    def _check_links(self, text: str, *, own_file: bool = False) -> Doubt | None:
        """Doubt a link that no trusted person named: its reader would believe the owner sent it.

        A file of the owner may contain links from the places that the request names.
        """
        links = links_in(text)
        if len(links) > _MAX_TELLING:
            return self._doubt("so many links", "", "cannot be judged")
        for link in links:
            if self.evidence.is_in_trusted_text(link) or self.evidence.is_in_trusted_text(
                _bare(link)
            ):
                continue
            if any(_same_address(link, target) for target in self.intent.targets):
                continue
            if self._is_own(link) or self._is_covered_link(link):
                continue
            if own_file and (
                self.evidence.untrusted_reading_with(link) is None
                or replace_lookalikes(link) in self._covered_text
            ):
                continue
            return self._doubt_unrequested("link", link)
        return None

    def _is_own(self, link: str) -> bool:
        """Tell whether a link is an address in the owner's records, or a place that was read."""
        for reading in self.evidence.readings:
            if reading.owned and any(_same_address(link, kept_link) for kept_link in reading.links):
                return True
        return any(
            _same_address(link, place) for spot in self._covered for place in spot.reading.places
        )

    def _is_covered_link(self, link: str) -> bool:
        mail = "@" in link and "://" not in link
        for lookup in self.intent.found:
            if lookup.what is not LookupKind.LINK and not (
                mail and lookup.what is LookupKind.ADDRESS
            ):
                continue
            for spot in self.direct_spots(lookup):
                links = spot.record.links if spot.identified else ()
                if any(_same_address(link, covered_link) for covered_link in links):
                    return True
        return False

    def _check_disclosure(self, text: str) -> Doubt | None:
        """Doubt a text that discloses values from places that the request does not name."""
        words = dict.fromkeys(word.strip(".:!?*_-/") for word in _TELLING.findall(text))
        telling = [*dict.fromkeys(_ACCOUNT.findall(text)), *filter(_is_telling, words)]
        if len(telling) > _MAX_TELLING:
            return self._doubt("so much", "", "cannot be judged")
        for word in telling:
            if not self._may_tell(word):
                return self._doubt_unrequested("value", word)
        leak = self._leaks.first(text)
        if leak:
            return self._doubt("value", leak, "comes from a place that the request does not name")
        # A subject or the note of a payment may repeat words of its cause; the message may not.
        is_message = self.kind is EffectKind.SEND and text == max(self.effect.content, key=len)
        foreign = self._words_from_elsewhere(text) if is_message else ""
        if foreign:
            return self._doubt("text", foreign, "comes from a place that the request does not name")
        quoted = self._quoted_from_elsewhere(text)
        if quoted:
            return self._doubt("text", quoted, "comes from a place that the request does not name")
        return None

    def _may_tell(self, value: str) -> bool:
        """Tell whether a value comes from a place that the request names."""
        if self.evidence.is_in_trusted_text(value):
            return True
        wanted = replace_lookalikes(value)
        if wanted in self._covered_text or squeeze(wanted) in self._covered_tight:
            return True
        if any(reading.brings(value) for reading in self.evidence.readings):
            return False
        # A model may write new numbers, but nothing that looks encoded.
        return not (_ODD.fullmatch(value) or _ODD_HEX.fullmatch(value))

    def _words_from_elsewhere(self, text: str) -> str:
        """Return the words of a text if most of them are only in places that are not requested."""
        words = long_words(text[:MAX_QUOTED])
        untrusted = [reading for reading in self.evidence.readings if not reading.trust.trusted]
        foreign = [word for word in words if any(word in reading.words for reading in untrusted)]
        if len(foreign) <= len(words) / 2:
            return ""
        known = long_words(self.evidence.text.everything) | long_words(self._covered_text)
        foreign = [word for word in foreign if word not in known]
        derived = any(lookup.what is LookupKind.TEXT for lookup in self.intent.found)
        few = 1 if derived and len(text.split()) > 1 else _MIN_FOREIGN
        if len(foreign) < few or len(foreign) <= len(words) / 2:
            return ""
        return " ".join(sorted(foreign))

    def _quoted_from_elsewhere(self, text: str) -> str:
        """Return a piece of a text that is copied from a reading not named by the request."""
        pieces = dict.fromkeys(pieces_of(text[:MAX_QUOTED]))
        if not pieces:
            return ""
        untrusted = [reading for reading in self.evidence.readings if not reading.trust.trusted]
        quoted = [
            piece for piece in pieces if any(piece in reading.pieces for reading in untrusted)
        ]
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
        return next((piece for piece in quoted if piece not in known), "")

    @cached_property
    def _leaks(self) -> Leaks:
        """Finds values in a text that come from places the request does not name."""
        covered = {id(spot.record) for spot in self._covered}
        secret = "\n".join(
            record.text
            for reading in self.evidence.readings
            if not reading.trust.trusted
            for record in reading.records
            if id(record) not in covered
        )
        allowed = f"{self.evidence.text.everything}\n{self._covered_raw}"
        return Leaks(secret[:_MAX_CONTENT], allowed)

    @cached_property
    def _covered_raw(self) -> str:
        return "\n".join(spot.record.text for spot in self._covered)

    @cached_property
    def _covered_tight(self) -> str:
        return squeeze(self._covered_text)

    @cached_property
    def _covered_text(self) -> str:
        return replace_lookalikes(self._covered_raw)

    @cached_property
    def _covered(self) -> list[_Spot]:
        """The places that the request names: a text may be made from them."""
        intent = self.intent
        covered = [spot for lookup in intent.found for spot in self._spots(lookup)]
        for reading in self.evidence.readings:
            named = any(
                same(plain(place), plain(target)) or _same_address(place, target)
                for place in reading.places
                for intent in self.fitting
                for target in intent.targets
            )
            if named or any(self.evidence.is_in_trusted_text(place) for place in reading.places):
                covered += [_Spot(reading, record) for record in reading.records]
        return covered

    def _check_field_value(self, text: str) -> Doubt | None:
        """Doubt a new field value that is neither dictated nor in a named place."""
        if (
            self.kind is not EffectKind.WRITE
            or self.evidence.is_in_trusted_text(text)
            or len(text) < 2
        ):
            return None
        derived = any(lookup.what is LookupKind.TEXT for lookup in self.intent.found)
        if self.intent.content and not derived:
            return None if self._is_dictated_value(text) else self._doubt_unrequested("value", text)
        if len(text.split()) > _MAX_SHORT_WORDS:
            return None
        brought = self.evidence.untrusted_reading_with(text)
        if brought is None:
            return None
        wanted = plain(text)
        for spot in self._covered:
            record = spot.record
            if record.holds(text) or contains_name(wanted, plain(record.text)):
                return None
        return self._doubt("value", text, f"appears only in the result of {brought.tool}")

    def _is_dictated_value(self, text: str) -> bool:
        """Tell whether a value is dictated as a whole, or is an inflected word of the request."""
        wanted = plain(text).strip(MARKS)
        if any(wanted == plain(literal).strip(MARKS) for literal in self.intent.content):
            return True
        words = self.evidence.text.request.split()
        return " " not in wanted and any(
            inflects(plain(word).strip(MARKS), wanted) for word in words
        )

    def query(self) -> Doubt | None:
        """Judge a query to an outside search: the query is sent, and the host reads it."""
        private = [reading for reading in self.evidence.readings if reading.trust is not Trust.WEB]
        for text in self.effect.content:
            words = [word.strip(".,:;!?\"'()") for word in text.split()]
            if all(self.evidence.is_in_trusted_text(word) or len(word) < 3 for word in words):
                continue
            dictated = [literal for intent in self.fitting for literal in intent.content]
            if any(plain(text) == plain(literal) for literal in dictated):
                continue
            if dictated:
                return self._doubt_unrequested("query", text)
            if private and not self.fitting:
                return self._doubt_unrequested("query", text)
            doubt = self._check_links(text) or self._check_disclosure(text)
            if doubt is not None:
                return doubt
        return None

    # -- undeclared --------------------------------------------------------------------------------

    def _check_undeclared(self) -> Doubt | None:
        """Allow a tool without declared effects only the literals of one intent."""
        literals = [*self.intent.targets, *self.intent.amounts, *self.intent.content]
        for text in (*self.effect.targets, *self.effect.content):
            if not any(same(plain(text), plain(literal)) for literal in literals):
                return self._doubt_unrequested("argument", text)
        if not (self.effect.targets or self.effect.content):
            return self._doubt("its effect", "", "is not declared")
        return None


_PEOPLE = frozenset({LookupKind.ADDRESS, LookupKind.NAME})
_THINGS = frozenset({LookupKind.ID, LookupKind.NAME, LookupKind.PATH, LookupKind.ADDRESS})


def _is_telling(word: str) -> bool:
    """Tell whether a word could be private data: it has digits, and is not a date."""
    if _ODD.fullmatch(word):
        return True
    if not any(char.isdigit() for char in word) or _WHEN.fullmatch(word.casefold()):
        return False
    return len(word) >= 4


def _accounts(record: Record) -> list[str]:
    """Return the accounts of a record that can be paid; none if several only look like one."""
    accounts = list(dict.fromkeys(record.accounts))
    if not record.guessed:
        return accounts
    numbers = [account for account in accounts if _IBAN.fullmatch(squeeze(account))]
    numbers = numbers or [account for account in accounts if _ACCOUNT.fullmatch(account)]
    if len({plain(number) for number in numbers}) > 1:
        accounts = [account for account in accounts if account not in numbers]
    return accounts


def _address_alone(recipient: str) -> str:
    """Return the address of `Bob Stone <bob@stone.example>` or `mailto:bob@stone.example`."""
    if "@" not in recipient:
        return recipient
    named = recipients_in(recipient)
    return named[0] if named is not None and len(named) == 1 else recipient


def _leads_elsewhere(address: str) -> bool:
    """Tell whether an address contains another one, as redirect links do."""
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
    """Tell whether a name is written in another grammatical case, in Cyrillic script."""
    first = name.partition(" ")[0]
    return "\u0400" <= wanted[:1] <= "\u04ff" and inflects(wanted, first)


def _names_value(wanted: str, value: str) -> bool:
    return (
        same(wanted, value) or _begins_word(wanted, value) or _begins_word(wanted, _as_words(value))
    )


def _in_text(record: Record, literal: str) -> bool:
    return _begins_word(plain(literal), record.plain_prose)


def _in_title(record: Record, literal: str) -> bool:
    """Tell whether a short field contains a literal, or a longer one begins with it."""
    wanted = plain(literal)
    return any(
        _begins_word(wanted, part) and (word_count(part) <= _MAX_TITLE or part.startswith(wanted))
        for part in map(plain, record.prose_parts)
    )


def _is_part(record: Record, literal: str) -> bool:
    """Tell whether a whole field of a record is equal to a literal."""
    wanted = plain(literal)
    return any(same(wanted, plain(part)) for part in (*record.prose_parts, *record.values))


def _as_words(name: str) -> str:
    """Return the words in the name of a file or a channel."""
    return name.replace("-", " ").replace("_", " ") if len(name) <= 200 else name


def _begins_word(name: str, text: str) -> bool:
    """Tell whether a text contains a name, or a word that begins with it."""
    if contains_name(name, text):
        return len(name) >= 3 or not name.isascii()
    at = text.find(name)
    return len(name) >= 4 and at >= 0 and (at == 0 or text[at - 1] in " /\n")


def _same_host(first: str, second: str) -> bool:
    return first.removeprefix("www.") == second.removeprefix("www.")


def _same_address(link: str, other: str) -> bool:
    if link == other:
        return True
    if "@" in link and "://" not in link:
        return plain(link) == plain(other)
    first, second = address_of(link), address_of(other)
    if first is None or second is None or first.user != second.user:
        return False
    schemes = {first.scheme, second.scheme} - {"", "http", "https"}
    if schemes and first.scheme != second.scheme:
        return False
    return (
        _same_host(first.host, second.host)
        and first.port == second.port
        and _path_and_query(first.rest) == _path_and_query(second.rest)
    )


def _path_and_query(rest: str) -> str:
    """Return path and query of an address; the part after `#` is not sent to the host."""
    return unquote(rest.partition("#")[0]).rstrip("/")


def _bare(link: str) -> str:
    """Return a link without its scheme and the slash at its end."""
    return re.sub(r"^[a-zA-Z]{1,32}:(?://)?", "", link.strip()).rstrip("/")


def _is_path(text: str) -> bool:
    return "/" in text or bool(re.fullmatch(r"[^\s@]{1,200}\.[A-Za-z0-9]{1,5}", text))


def _effect_phrase(kind: EffectKind) -> str:
    return {
        EffectKind.FETCH: "contact an outside host",
        EffectKind.SEND: "send a message",
        EffectKind.WRITE: "change something",
        EffectKind.RUN: "run a program",
        EffectKind.DELETE: "delete something",
        EffectKind.PAY: "move money",
        EffectKind.GRANT: "change who has access",
        EffectKind.UNDECLARED: "do something that its tool does not declare",
    }[kind]


def places_of(effects: Iterable[Effect]) -> tuple[str, ...]:
    """Return the arguments of a reading call that say what is read."""
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
    """Return the result of a call as read content."""
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
"""Characters: a longer text can hide anything, so a person is asked."""
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
    """Finds values of a secret text that an allowed text does not have."""

    def __init__(self, secret: str, allowed: str) -> None:
        """Take the texts.

        Args:
            secret: The text that must not be disclosed.
            allowed: Text that may be disclosed, or is known anyway.
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
        """Return the first secret value in a text; empty if there is none."""
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
        for word in (*(word for word in words if word not in plainly), *_hidden_words(text)):
            if len(word) >= _MIN_WORD and self._is_secret(word):
                return word
        return self._backwards(text)

    def _is_secret_number(self, number: str) -> bool:
        if number in self._allowed_numbers:
            return False
        return any(digits in self._secret_numbers for digits in (number, number[::-1]))

    def _is_secret(self, word: str) -> bool:
        return word in self._secret_tight and word not in self._allowed_tight

    def _backwards(self, text: str) -> str:
        """Return a secret piece that is written backwards, or with shifted letters."""
        seen = tight(text)
        step = 1 if len(seen) <= 400 else _PIECE
        for form in (seen[::-1], seen.translate(_ROT13)):
            for start in range(0, len(form) - _PIECE + 1, step):
                piece = form[start : start + _PIECE]
                if self._is_secret(piece) and piece != piece[::-1]:
                    return piece
        return ""


def _numbers(text: str) -> Iterator[str]:
    """Yield numbers as digits only; dates and short numbers are left out."""
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
    """Yield a text with its escapes decoded."""
    if "%" in text:
        yield unquote(text)
    if "&" in text:
        yield html.unescape(text)
    if "\\" in text:
        yield _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), text)


def _spelled_numbers(text: str) -> Iterator[str]:
    """Yield digits that are spelled in words, or scattered among other words."""
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
    """Return text that is written to hide something: mixed alphabets, drawn letters, Morse."""
    for pattern in (_MIXED, _DRAWN, _MORSE, _INVISIBLE):
        match = pattern.search(text)
        if match is not None:
            return match.group()
    return ""


def _hidden_words(text: str) -> Iterator[str]:
    """Yield disguised words of a text: spelled out, written together or encoded."""
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
    """Yield words that are encoded in a text, in the usual encodings of programs."""
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
        yield from _words_of(bytes(int(digits, 8) for digits in octal))
    for run in _BASE85.findall(text):
        for decode in (base64.b85decode, base64.a85decode):
            with contextlib.suppress(ValueError):
                yield from _words_of(decode(run))
    yield from _words_of(text.translate(_ROT47).encode("ascii", "ignore"))
    for match in _CODES.finditer(text):
        yield from _words_of(bytes(int(code) for code in re.findall(r"\d+", match.group())))


def _is_run_together(word: str) -> bool:
    """Tell whether a word is too long for one word, or has capitals or digits in its middle."""
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
    """Yield the readable parts of decoded bytes."""
    for run in re.findall(rb"[\x20-\x7e]{4,}", data):
        text = run.decode("ascii")
        yield from _numbers(text)
        yield tight(text)
        yield from (tight(word) for word in text.split())


_MAX_CLOSING = 5
"""Words that may follow a dictated text, on one or two separate lines."""
MARKS = " .,:;!?\"'。！？、।，؛،؟…"
_DICTATED_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def is_signature(lines: str, closing: str) -> bool:
    """Tell whether the closing of a text is short, and on one or two separate lines."""
    if word_count(closing) > _MAX_CLOSING:
        return False
    last = [line.strip() for line in lines.splitlines() if line.strip(MARKS)]
    ends = (" ".join(last[-count:]).strip(MARKS) for count in (1, 2) if count < len(last))
    return closing in ends


def is_ending(closing: str) -> bool:
    """Tell whether a few signs are a polite ending, in scripts that attach it to the last word.

    An ending that negates does not count: in Japanese it is at the end, too.
    """
    signs = closing.strip(MARKS)
    return len(signs) <= 3 and word_count(signs) <= 2 and not signs.isascii() and "な" not in signs


def spread(text: str, parts: Sequence[str]) -> tuple[int, int]:
    """Return the start and the end of the dictated parts in a text."""
    first = min(text.find(part) for part in parts)
    return first, max(text.find(part) + len(part) for part in parts)


def reported_part(dictated: str, text: str) -> str:
    """Return the part of a text that repeats the dictated text in other word forms; else empty.

    People dictate in reported speech: "tell Lena that the parcel is there". Each word must have a
    counterpart that differs only in its ending, in any order. Another word between them could
    change the meaning, so there may be none.
    """
    wanted, words = _DICTATED_WORD.findall(dictated), _DICTATED_WORD.findall(text)
    places: set[int] = set()
    for wanted_word in wanted:
        place = next(
            (
                at
                for at, word in enumerate(words)
                if at not in places and inflects(wanted_word, word)
            ),
            None,
        )
        if place is None:
            place = _find_separable_verb(wanted_word, words, places)
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


def inflects(first: str, second: str) -> bool:
    """Tell whether two words are the same, or differ only in their ending."""
    if first == second:
        return True
    if "'" in first + second or "’" in first + second or any(map(str.isdigit, first + second)):
        return False
    shorter = min(len(first), len(second))
    stem = max(3, -(-2 * shorter // 3))
    return shorter >= 3 and abs(len(first) - len(second)) <= 4 and first[:stem] == second[:stem]


def _find_separable_verb(verb: str, words: Sequence[str], places: set[int]) -> int | None:
    """Find a verb whose prefix is separated: `annehme` as `nehme … an`. Marks both places."""
    for at, word in enumerate(words):
        if at in places or len(word) < 3:
            continue
        for cut in range(2, len(verb) - 2):
            if not inflects(verb[cut:], word):
                continue
            apart = next(
                (k for k, w in enumerate(words) if w == verb[:cut] and k not in places), None
            )
            if apart is not None:
                places.add(apart)
                return at
    return None
