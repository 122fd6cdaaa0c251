"""Replay of a turn from a tape: requests are built again and answered from the recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from asterism import plugins
from asterism.app.engine import make_model
from asterism.config import ModelSettings, Settings
from asterism.errors import ModelError
from asterism.models.cassette import Cassette, Exchange, Playback, RecordedRequest, first_difference
from asterism.ports import Model, ModelQuestion, ModelRequest, Profile, Profiled
from asterism.store import journal
from asterism.store.database import Database
from asterism.tools.tool import Toolbox
from asterism.turns.context_view import Past
from asterism.turns.replay import replay
from asterism.types.agents import Blob
from asterism.types.turns import Entry, Replay, Reply, TurnRecord, images_in, with_images

_MESSAGE = b'{"role":"user"'


async def replay_tape(
    database: Database,
    settings: Settings,
    toolbox: Toolbox,
    record: TurnRecord,
    entries: list[Entry],
    path: Path,
) -> Replay:
    """Run a turn again with models heard from a tape, and compare requests as well as replies."""
    deck = _Deck(path)
    models = _TapedModels(settings, deck, database)
    try:
        replayed = await replay(
            database,
            record,
            entries,
            toolbox=toolbox,
            wire=models.answer,
        )
    finally:
        await models.close()
    differences = (*models.differences, *replayed.differences)
    return replace(replayed, same=not differences, differences=differences)


class _Composed(Exception):
    """A request was composed, and no more than that was wanted."""


class _Deck(Cassette):
    """Answers every request with one recorded exchange, and keeps the request."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "play")
        self.chosen: Exchange | None = None
        self.body = b""

    def play(self, request: RecordedRequest) -> Playback:
        """Return the chosen exchange."""
        self.body = request.body
        if self.chosen is None:
            raise _Composed
        return Playback(self.chosen, 0.0)


class _TapedModels:
    """The models that a turn heard, each behind its real wire format."""

    def __init__(self, settings: Settings, deck: _Deck, database: Database) -> None:
        self.differences: list[str] = []
        self._settings = settings
        self._deck = deck
        self._database = database
        self._ports: dict[tuple[str, str], Model] = {}

    async def answer(
        self, question: ModelQuestion, past: Past | None, recorded: Reply | None
    ) -> Reply | None:
        """Answer from the recording of a step; note how the requests differ."""
        key = question.compose(question.models[0], Profile(), 0).key
        step = key.partition("/")[2]
        exchanges = [exchange for exchange in self._deck.exchanges if exchange.request.key == key]
        if not exchanges:
            self.differences.append(f"{step}: not on the tape; taken from the journal.")
        shown = past.messages if past is not None else ()
        named = sorted({id for wire in shown for id in images_in(wire)})
        images = await self._database.read(lambda tx: journal.get_blob(tx, named)) if named else {}
        last: Reply | None = None
        problem: ModelError | None = None
        for exchange in exchanges:
            try:
                reply = await self._play(exchange, question, past, images, step)
            except ModelError as error:
                problem = error
            else:
                # A process that was killed may have asked twice, and kept the second reply.
                if last is None or recorded is None or last.wire() != recorded.wire():
                    last = reply
        if last is None and problem is not None and recorded is None:
            raise problem
        return last

    async def close(self) -> None:
        """Let go of the ports."""
        for port in self._ports.values():
            await port.close()

    async def _play(
        self,
        exchange: Exchange,
        question: ModelQuestion,
        past: Past | None,
        images: dict[str, Blob],
        step: str,
    ) -> Reply:
        port = self._port(exchange)
        model, body = exchange.request.model, exchange.request.body
        profile = port.profile(model.partition(":")[2]) if isinstance(port, Profiled) else Profile()
        # The window is left out: how much of the past was sent is told by the tape.
        request = question.compose(
            model, Profile(compact=profile.compact, images=profile.images), 0
        )
        head, tail = list[bytes](), list[bytes]()
        if past is not None and profile.compact:
            head = list(past.compact)
        elif past is not None:
            head, tail = [past.head], list(past.messages)
        seen = images if profile.images else None
        head, tail = (
            [with_images(wire, seen) if images_in(wire) else wire for wire in wires]
            for wires in (head or request.messages[:1], tail)
        )
        request = replace(request, messages=head)
        streamed, most = exchange.output_options
        nearest = request
        for max_output in dict.fromkeys((None, most)):
            wanted = replace(request, max_output=max_output)
            nearest = await self._with_past(port, wanted, tail, body, streamed=streamed)
            if self._deck.body == body:
                break
        else:
            difference = first_difference(body, self._deck.body)
            self.differences.append(
                f"{step}, line {exchange.line} of the tape: another request; {difference}."
            )
        self._deck.chosen = exchange
        try:
            reply = await port.complete(nearest, _show_nobody if streamed else None)
        finally:
            self._deck.chosen = None
        return replace(reply, model=model)

    async def _with_past(
        self, port: Model, request: ModelRequest, past: list[bytes], body: bytes, *, streamed: bool
    ) -> ModelRequest:
        """Return the request with as much of the past as makes it as long as the recorded one.

        A model that answered nothing, of which the journal keeps nothing, may have been sent less.
        """
        head = request.messages
        # What is left of a past that was cut begins with a message.
        starts = [at for at, wire in enumerate(past) if wire.startswith(_MESSAGE)] or [0]
        low, high = 0, len(starts) - 1
        while low < high:
            middle = (low + high) // 2
            tried = replace(request, messages=[*head, *past[starts[middle] :]])
            if len(await self._compose(port, tried, streamed=streamed)) > len(body):
                low = middle + 1
            else:
                high = middle
        chosen = replace(request, messages=[*head, *past[starts[low] :]])
        await self._compose(port, chosen, streamed=streamed)
        return chosen

    async def _compose(self, port: Model, request: ModelRequest, *, streamed: bool) -> bytes:
        self._deck.body = b""
        try:
            await port.complete(request, _show_nobody if streamed else None)
        except _Composed:
            return self._deck.body
        return b""

    def _port(self, exchange: Exchange) -> Model:
        vendor, address = exchange.request.model.partition(":")[0], exchange.request.address
        port = self._ports.get((vendor, address))
        if port is None:
            own = self._settings.models.get(vendor, ModelSettings())
            api = None if vendor in plugins.names("models") else exchange.api
            there = {"base_url": address, "api": own.api or api}
            models = {**self._settings.models, vendor: own.model_copy(update=there)}
            settings = self._settings.model_copy(update={"models": models})
            port = make_model(settings, exchange.request.model, self._deck)
            self._ports[vendor, address] = port
        return port


def _show_nobody(kind: str, piece: str) -> None:
    """Have a reply streamed, as it was then, though nobody watches."""
