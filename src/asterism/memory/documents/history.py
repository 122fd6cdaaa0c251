"""A document with its past: as of a version, one edit taken back, a version restored, merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asterism.errors import InvalidInput, NotFound, StoreDamaged
from asterism.memory.documents import storage
from asterism.memory.documents.diffing import Splice
from asterism.memory.documents.document import Document
from asterism.memory.documents.edits import edited
from asterism.memory.documents.merging import merged
from asterism.types.memory import Schema, SetText

if TYPE_CHECKING:
    from loro import LoroDoc


class StartTooLate(InvalidInput):
    """Updates build on versions that are older than the start; with an earlier start it works."""


class History:
    """A document with its past: a start snapshot and the Loro updates since."""

    __slots__ = ("_doc", "_peer", "_schema", "_start", "document")

    def __init__(self, schema: Schema, start: bytes | None, doc: LoroDoc, peer: int) -> None:
        self._schema = schema
        self._start = start
        self._doc = doc
        self._peer = peer
        self.document = Document(schema, doc)
        """The latest state."""

    @staticmethod
    def load(schema: Schema, start: bytes | None, ops: Sequence[bytes], peer: int) -> History:
        """Load a start (None: nothing) and all updates since it, in their order.

        Raises:
            StartTooLate: One of the updates was made, on another replica, before the start.
        """
        return History(schema, start, _loaded(start, ops, peer), peer)

    def at(self, version: bytes) -> Document:
        """Return a copy of the document as it was at encoded frontiers."""
        return Document(self._schema, _copy_at(self._doc, self._start, version))

    def revert(self, before: bytes, after: bytes) -> None:
        """Take one edit back; what came after it stays.

        Not Loro's inverse: that would miss text that was taken out and put back since (by an undo
        and a redo), which is new text to Loro. What the edit did is taken back in what Loro knows
        to be left of it, and in lines that have come back at the same place.
        """
        self._merge_states(after, self.at(after).state, self.at(before).state, keep_all=False)

    def restore(self, version: bytes) -> None:
        """Make the document what it was at a version, in one commit."""
        self.document.write(self.at(version).state)

    def write_at(self, version: bytes, edit: SetText, *, now: int = 0) -> None:
        """Write the whole anew as against a version; what was written since is kept."""
        base = self.at(version).state
        wanted = edited(self._schema, base, edit, now)
        self._merge_states(version, base, wanted, keep_all=True)

    def _merge_states(self, since: bytes, base: Any, wanted: Any, *, keep_all: bool) -> None:
        ours = self.document.state
        deltas = _text_deltas(self._doc, self._start, since)
        state = merged(self._schema, base, ours, wanted, keep_all=keep_all, deltas=deltas)
        self.document.write(state)

    def merge(self, updates: bytes) -> None:
        """Take in another replica's updates.

        Raises:
            InvalidInput: They are no updates, are of another document or of another schema, or
                build on updates that are missing (`StartTooLate`: perhaps only missing here).
        """
        from loro import ExportMode

        # On a copy: Loro keeps updates that it cannot apply yet.
        doc = storage.load([self._doc.export(ExportMode.Snapshot())], self._peer)
        known = doc.oplog_vv.to_spans().inner()
        _import(doc, updates)
        for peer in doc.oplog_vv.to_spans().inner():
            if peer not in known and _begins_anew(doc, peer):
                raise InvalidInput(
                    "These updates are of another document. Give updates that were made from a "
                    "copy of this block; nothing was changed."
                )
        if wrong := storage.misfits(self._schema, doc) - storage.misfits(self._schema, self._doc):
            raise InvalidInput(
                f"These updates would write what the schema does not take: {min(wrong)} "
                "Nothing was changed."
            )
        self._doc = doc
        self.document = Document(self._schema, doc)


def fold(
    schema: Schema, start: bytes | None, ops: Sequence[bytes], upto: bytes
) -> tuple[bytes, bytes]:
    """Return one update for all edits from a start to a version, and the snapshot at its end.

    Raises:
        StartTooLate: One of the updates was made, on another replica, before the start.
    """
    from loro import ExportMode

    doc = _loaded(start, ops, None)
    spans = _vv(doc, upto).sub_iter(_loaded(start, [], None).oplog_vv)
    with storage.loro_errors():
        update = doc.export(ExportMode.UpdatesInRange(spans))
    # What is folded replaces the edits one by one, so it is tried before anybody lets go of them.
    folded = Document(schema, _loaded(start, [update], None))
    snapshot = Document(schema, _copy_at(doc, start, upto)).snapshot()
    if folded.state != Document(schema, storage.load([snapshot], None)).state:
        raise StoreDamaged("A block's edits do not fold into the state they lead to.")
    return update, snapshot


def _loaded(start: bytes | None, ops: Sequence[bytes], peer: int | None) -> LoroDoc:
    try:
        return storage.load([*([] if start is None else [start]), *ops], peer)
    except storage.LoroRefused as error:
        raise _too_late_or_damaged(error) from error


def _too_late_or_damaged(error: storage.LoroRefused) -> Exception:
    if isinstance(error, storage.LoroTooLate):
        return StartTooLate(
            "These updates build on versions that are older than the history at hand. "
            "Nothing was changed."
        )
    return StoreDamaged(
        f"A block's history cannot be read as it is stored ({error}). "
        "Restore the database from a backup; nothing was changed."
    )


def _vv(doc: LoroDoc, version: bytes) -> Any:
    try:
        vector = doc.frontiers_to_vv(storage.frontiers(version))
    except storage.LoroRefused:
        vector = None
    if vector is None:
        raise _not_at_hand()
    return vector


def _not_at_hand() -> NotFound:
    return NotFound("This version is not in the history at hand; nothing was changed.")


def _copy_at(doc: LoroDoc, start: bytes | None, version: bytes) -> LoroDoc:
    """Make a document again up to a version.

    Forwards from the start: Loro goes back in time some hundred times slower (1.17).
    """
    from loro import ExportMode

    wanted = _vv(doc, version)
    copy = _loaded(start, [], None)
    if not wanted.includes_vv(copy.oplog_vv):
        raise _not_at_hand()
    if spans := wanted.sub_iter(copy.oplog_vv):
        with storage.loro_errors():
            copy.import_(doc.export(ExportMode.UpdatesInRange(spans)))
    return copy


def _text_deltas(doc: LoroDoc, start: bytes | None, since: bytes) -> dict[str, list[Splice[str]]]:
    """Return what became of each section's text since a version, as Loro tracks it."""
    from loro import ExportMode

    copy = _copy_at(doc, start, since)
    told: list[Any] = []
    watching = copy.subscribe_root(told.append)
    with storage.loro_errors():
        copy.import_(doc.export(ExportMode.Updates(copy.oplog_vv)))
    del watching
    deltas: dict[str, list[Splice[str]]] = {}
    for event in told:
        for change in event.events:
            name = str(getattr(change.target, "name", ""))
            if name.endswith(":text"):
                deltas[name.removesuffix(":text")] = _splices(change.diff.diff)
    return deltas


def _splices(delta: Sequence[Any]) -> list[Splice[str]]:
    splices: list[Splice[str]] = []
    at = 0
    for one in delta:
        match type(one).__name__:
            case "TextDelta_Retain":
                at += one.retain
                continue
            case "TextDelta_Insert":
                made: Splice[str] = Splice(at, 0, one.insert)
            case _:
                made = Splice(at, one.delete, "")
                at += one.delete
        if splices and splices[-1].end == made.at:
            last = splices.pop()
            made = Splice(last.at, last.delete + made.delete, last.insert + made.insert)
        splices.append(made)
    return splices


def _import(doc: LoroDoc, updates: bytes) -> None:
    from loro import EncodedBlobMode, LoroDoc

    try:
        with storage.loro_errors():
            mode = LoroDoc.decode_import_blob_meta(updates, check_checksum=True).mode
            if mode not in (EncodedBlobMode.Updates, EncodedBlobMode.Snapshot):
                raise InvalidInput(
                    "This is a snapshot without history, which cannot be merged. Export updates "
                    "instead; nothing was changed."
                )
            pending = doc.import_(updates).pending
    except storage.LoroTooLate as error:
        raise _too_late_or_damaged(error) from error
    except storage.LoroRefused as error:
        raise InvalidInput(
            f"These are no Loro updates ({error}). Export them from a replica of this block; "
            "nothing was changed."
        ) from error
    if pending is not None:
        raise InvalidInput(
            "These updates build on others that are not here. Merge those first, or export all "
            "updates since the two replicas were the same; nothing was changed."
        )


def _begins_anew(doc: LoroDoc, peer: int) -> bool:
    """Tell whether a peer's first change builds on nothing: only a document's first may."""
    from loro import ID, Frontiers

    change = doc.get_change(ID(peer, 0))
    return change is not None and change.deps.encode() == Frontiers().encode()
