"""A process that spends under a cap until it is killed, with a vendor that bills what it did."""

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asterism.errors import ModelRefused, ModelUnavailable
from asterism.ports import Emit, ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.turns.spending import Prices
from asterism.types.spending import Price
from asterism.types.turns import Reply, Usage
from tests.scenes import open_home
from tests.torture.worker import append

CREW = [f"a{number}" for number in range(16)]
CAP = 0.08


@dataclass(frozen=True)
class Spree:
    """What a spender is told."""

    place: Path
    seed: int
    store_url: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Caps that hold for some dozens of calls."""
        store = {"store": {"url": self.store_url}} if self.store_url else {}
        return store | {
            "budget": {"day": CAP, "max_output": 50, "each_agent": {"day": CAP / 8}},
            "prices": {"scripted:one": {"input": 1.0, "output": 20.0}},
            "models": {"scripted": {"retries": 0}},
            "limits.seconds": 2.0,
        }


class BillingVendor(ScriptedModel):
    """Bills a call when it has done it; sometimes nobody hears the answer."""

    def __init__(self, spree: Spree, price: Price | None) -> None:
        super().__init__()
        self._chance = random.Random(spree.seed)
        self._bills = spree.place / "bills.jsonl"
        self._price = price

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Answer, refuse, or bill and break off."""
        chance, price = self._chance, self._price
        assert price is not None
        if chance.random() < 0.1:
            raise ModelRefused("No.")
        await asyncio.sleep(chance.uniform(0, 0.01))
        size = sum(map(len, request.messages))
        usage = Usage(
            chance.randint(size // 8, size // 3), chance.randint(1, request.max_output or 0)
        )
        append(self._bills, amount=price.cost(usage), pid=os.getpid())
        if chance.random() < 0.1:
            cut = ModelUnavailable("The connection was lost.")
            cut.begun = True
            raise cut
        await asyncio.sleep(chance.uniform(0, 0.01))
        return Reply("Yes.", usage=usage)


def spend(spree: Spree) -> None:
    """Spend until killed."""
    fd = os.open(spree.place / "spender.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(fd, 2)
    asyncio.run(_spend(spree))


async def _spend(spree: Spree) -> None:
    from asterism.config import Settings

    settings = Settings.model_validate({"prices": spree.settings["prices"]}, context={})
    vendor = BillingVendor(spree, Prices(lambda: settings).of("scripted:one"))
    async with open_home(spree.place, vendor, settings=spree.settings) as home:
        for name in CREW:
            await home.agents.ensure(name, system="", tools=[])

        async def talk(name: str) -> None:
            for number in range(10_000):
                await home.agents.ask(name, "Hello", external_id=f"{os.getpid()}/{name}/{number}")
                append(spree.place / "turns.jsonl", name=name)

        await asyncio.gather(*(talk(name) for name in CREW))
