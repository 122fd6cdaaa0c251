"""Provenance: is what a call does covered by what trusted people said, after all that was read?

The rules, each of which can be broken only by a person, a policy or a grant:

- Who and what it is done to must be named by trusted text, or be a field of a record that the
  request speaks of and that no untrusted prose points at.
- What is done must be asked for.
- An amount must be named, be a field, or stay below what the request and its records speak of.
- A place that the request names may fill in *what* is written, never *to whom*.
- Nothing that was read travels in an address, and no link of others to anybody.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from asterism.permissions.readings import Readings, Record
from asterism.permissions.saying import each, loose, stands_in, strict
from asterism.types.deeds import Deed, DeedKind, Doubt, host_of

__all__ = ["Readings", "vouch"]

_JUDGED = frozenset(DeedKind) - {DeedKind.READ, DeedKind.REMEMBER}
"""Reading harms nobody; the gate of memory judges what is remembered."""
_RANK = {kind: rank for rank, kind in enumerate(DeedKind)}
_COINED = frozenset({DeedKind.WRITE})
"""Kinds whose things and paths a model may name itself: a new file has to be called something."""
_ADDRESS = re.compile(
    r"(?:https?|ftp)://[^\s<>\"')\]]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\b(?:www\.)?[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}(?:/[^\s<>\"')\]]*)?",
    re.IGNORECASE,
)
_ENDINGS = frozenset(
    each(
        "txt md csv pdf doc docx xls xlsx ppt pptx jpg jpeg png gif py json yaml yml toml html "
        "xml zip log"
    )
)
"""What a dot and letters mean in a file's name rather than a host's."""
_SHOWN = 80


def vouch(readings: Readings, deeds: Iterable[Deed]) -> Doubt | None:
    """Return why nobody trusted vouches for these deeds, or None if somebody does.

    Ask only after something untrusted was read: before, nobody needs to vouch for anything.
    """
    call = tuple(deeds)
    for deed in call:
        if deed.kind in _JUDGED:
            doubt = _Judgement(readings, deed, call).doubt()
            if doubt is not None:
                return doubt
    return None


class _Judgement:
    """One deed that is being judged."""

    def __init__(self, readings: Readings, deed: Deed, call: tuple[Deed, ...]) -> None:
        self.readings = readings
        # Who asks for a payment has asked for the note that goes with it.
        self.kinds = {one.kind for one in call if _RANK[one.kind] >= _RANK[deed.kind]}
        self.deed = deed
        self.kind = deed.kind

    def doubt(self) -> Doubt | None:
        if self.kind in (DeedKind.UNDECLARED, DeedKind.RUN):
            return self._anything()
        if self.kind is DeedKind.FETCH:
            return self._addresses(self.deed.hosts or self.deed.targets)
        return self._targets() or self._asked() or self._amount() or self._content()

    def _because(self, what: str, value: str, why: str) -> Doubt:
        shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
        named = f"{what} {shown!r}" if value else what
        return Doubt(
            f"it would {_words(self.kind)}, and {named} {why}", self.readings.reasons(named, value)
        )

    # -- to whom and to what -----------------------------------------------------------------------

    def _targets(self) -> Doubt | None:
        deed = self.deed
        for recipient in deed.recipients:
            doubt = self._target("recipient", recipient)
            if doubt is not None:
                return doubt
        for path in deed.paths:
            doubt = self._target("path", path)
            if doubt is not None:
                return doubt
        for thing in deed.things:
            doubt = self._target("thing", thing)
            if doubt is not None:
                return doubt
        return self._addresses(deed.hosts)

    def _target(self, what: str, value: str) -> Doubt | None:
        readings = self.readings
        if readings.named(value):
            return None
        brief = len(value) <= 3
        brought = None if brief else readings.brought_by(value)
        if brought is not None:
            return self._because(what, value, f"is named only by what {brought[0].tool} brought in")
        records = readings.records_of(value)
        if what == "recipient" and self.kind is DeedKind.GRANT:
            # Of records, only a bare list of names that are all meant says who is known.
            records = [one for one in records if one.plain and readings.wishes.everybody]
        if any(readings.is_meant(one, value) for one in records):
            return None
        sought = what != "recipient" and self.kind not in (DeedKind.PAY, DeedKind.GRANT)
        if sought and any(readings.is_named_place(one.reading) for one in records):
            return None
        if records:
            return self._because(what, value, "is not what the request speaks of")
        if what != "recipient" and self.kind in _COINED and _harmless(value):
            return None
        return self._because(what, value, "is named by nobody who is trusted")

    # -- what --------------------------------------------------------------------------------------

    def _asked(self) -> Doubt | None:
        wishes = self.readings.wishes
        if self.kinds & wishes.kinds:
            return None
        milder = self.kind is DeedKind.WRITE or (
            self.kind is DeedKind.PAY and not self.deed.recipients and not self.deed.hosts
        )
        if wishes.delegates and milder:
            return None
        return Doubt(
            f"it would {_words(self.kind)}, and nobody who is trusted asked for that",
            self.readings.reasons(f"{self.kind.value}"),
        )

    def _amount(self) -> Doubt | None:
        amount = self.deed.amount
        readings = self.readings
        if amount is None:
            return None
        amount = round(amount, 2)
        wishes = readings.wishes
        meant = [one for one in self._records() if readings.is_meant(one)]
        held = {number for one in meant for number in one.numbers}
        if amount in wishes.numbers or amount in held:
            return None
        places = [one for one in readings.untrusted if readings.is_named_place(one)]
        for one in readings.untrusted:
            if amount in one.numbers and one not in places:
                return self._because("amount", f"{amount:g}", f"is named only by {one.tool}")
        # A place that the request names may change an amount; it may not make it another one.
        stretch = 2 if any(one.numbers for one in places) else 1
        if 0 <= amount <= stretch * max(wishes.numbers | held, default=0.0):
            return None
        return self._because("amount", f"{amount:g}", "is more than the request speaks of")

    def _records(self) -> list[Record]:
        return [record for one in self.readings.untrusted for record in one.records]

    # -- content -----------------------------------------------------------------------------------

    def _content(self) -> Doubt | None:
        for text in self.deed.content:
            doubt = self._secrets_in(text) or self._links_in(text) or self._filled_in(text)
            if doubt is not None:
                return doubt
        return None

    def _secrets_in(self, text: str) -> Doubt | None:
        key = self.readings.secrets_in(text)
        if key is None:
            return None
        return self._because(f"{key} in it", "", "is not what the request speaks of")

    def _links_in(self, text: str) -> Doubt | None:
        """Doubt a link that others brought in: whoever gets it takes it for the owner's."""
        if self.kind in (DeedKind.WRITE, DeedKind.GRANT) and not self.deed.recipients:
            return None
        readings = self.readings
        for found in _ADDRESS.findall(loose(text)):
            address = found.rstrip(".,;:!?")
            if address.rpartition(".")[2] in _ENDINGS or self._knows(address):
                continue
            if readings.wishes.links and self._from_meant(address):
                continue
            brought = readings.brought_by(_bare(address)) or readings.brought_by(host_of(address))
            if brought is not None:
                return self._because("link", _bare(address), f"comes from {brought[0].tool}")
            if _is_plainly_one(address) and not readings.records_of(address):
                return self._because("link", _bare(address), "is named by nobody who is trusted")
        return None

    def _filled_in(self, text: str) -> Doubt | None:
        """Doubt secrets, and values that are written down, if only untrusted text names them."""
        readings = self.readings
        if self.kind is DeedKind.GRANT:
            if readings.named(text):
                return None
            return self._because("value", text, "is named by nobody who is trusted")
        telling = self.deed.things or len(text.split()) > 1 or not text.isalpha()
        if self.kind is not DeedKind.WRITE or not telling or readings.named(text):
            return None
        needle = loose(text)
        for reading in readings.untrusted:
            if reading.brings(text) is None:
                continue
            for record in reading.records:
                brings = any(stands_in(needle, loose(one)) for one in record.prose)
                if brings and not readings.points_at(record):
                    why = f"is named only by what {reading.tool} brought in"
                    return self._because("value", text, why)
        return None

    # -- hosts -------------------------------------------------------------------------------------

    def _addresses(self, addresses: Iterable[str]) -> Doubt | None:
        for address in addresses:
            if self._knows(address):
                continue
            if (
                self.kind is DeedKind.FETCH
                and DeedKind.FETCH in self.readings.wishes.kinds
                and self._from_meant(address)
            ):
                continue
            return self._because("address", address, "is named by nobody who is trusted")
        return None

    def _knows(self, address: str) -> bool:
        """Tell whether trusted text names an address, or its host and all that it carries."""
        readings = self.readings
        if readings.named(address) or readings.named(_bare(address)):
            return True
        host = host_of(address)
        if not (readings.named(host) or readings.named(host.removeprefix("www."))):
            return False
        return not self._carries(address)

    def _carries(self, address: str) -> bool:
        """Tell whether an address carries something that was read away."""
        parts = urlsplit(address if "//" in address else f"//{address}")
        told = unquote(f"{parts.path} {parts.query} {parts.fragment} {parts.username or ''}")
        if self.readings.secrets_in(told):
            return True
        for piece in re.split(r"[/?&=#;+\s]+", told):
            known = len(piece) < 3 or self.readings.named(piece)
            if not known and (self._was_read(piece) or len(piece) > 40):
                return True
        return False

    def _was_read(self, piece: str) -> bool:
        readings = self.readings
        name = strict(piece)
        if readings.brought_by(piece) is not None:
            return True
        return any(
            name in record.fields or any(stands_in(name, one) for one in record.fields)
            for record in self._records()
        )

    def _from_meant(self, address: str) -> bool:
        """Tell whether an address stands in a record that trusted text means by who wrote it."""
        needle = loose(_bare(address))
        for record in self._records():
            held = [loose(text) for text in record.prose] + list(record.fields)
            if not any(_holds(needle, text) for text in held):
                continue
            if any(len(one) >= 3 and self.readings.named(one) for one in record.fields):
                return True
        return False

    # -- whatever ----------------------------------------------------------------------------------

    def _anything(self) -> Doubt | None:
        for text in (*self.deed.targets, *self.deed.content):
            if not self.readings.named(text):
                return self._because("argument", text, "is named by nobody who is trusted")
        if self.kind is DeedKind.RUN:
            return self._asked()
        return None


def _holds(address: str, text: str) -> bool:
    at = text.find(address)
    end = at + len(address)
    return at >= 0 and (end == len(text) or not (text[end].isalnum() or text[end] in "/?&=#%-_"))


def _is_plainly_one(address: str) -> bool:
    """Tell an address from two words without a space between their sentences."""
    return "://" in address or "@" in address or address.startswith("www.")


def _bare(address: str) -> str:
    """Return an address without its scheme and the slash at its end."""
    return re.sub(r"^[a-z]+://", "", address.strip(), flags=re.IGNORECASE).rstrip("/")


def _harmless(path: str) -> bool:
    """Tell whether a name that nobody gave could only be that of something new of the agent's."""
    plain = posixpath.normpath(path.replace("\\", "/"))
    if plain.startswith(("/", "~", "..")) or ":" in plain:
        return False
    return not any(part.startswith(".") and part != "." for part in plain.split("/"))


def _words(kind: DeedKind) -> str:
    return {
        DeedKind.FETCH: "ask a host outside",
        DeedKind.SEND: "tell somebody something",
        DeedKind.WRITE: "change something",
        DeedKind.RUN: "run a program",
        DeedKind.DELETE: "take something away",
        DeedKind.PAY: "move money",
        DeedKind.GRANT: "change who has access",
        DeedKind.UNDECLARED: "do something that its tool does not declare",
    }[kind]
