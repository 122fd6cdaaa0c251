"""`python -m bench.gate_time`: how long slow texts hold the readers of values, against one pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson

from asterism.telemetry.redaction import KnownSecrets
from asterism.types.permissions import amounts_of
from asterism.types.values import (
    host_of,
    links_in,
    numbers_in,
    plain_path,
    recipients_in,
)

SIZES = (20_000, 1_000_000)
MAX_MS, MAX_JSON_MS = 200.0, 50.0
MAX_GROWTH = 8.0
"""Four times the text may take eight times as long: a square would take sixteen times."""
_SLOW = {
    "a-a-a…": "a-",
    "aaaa…": "a",
    "((((…": "(",
    "@@@@…": "@",
    "....…": ".",
    "//////…": "/",
    "a.a.a…": "a.",
    "a@a@a…": "a@",
    "://://…": "://",
    "%41%41…": "%41",
    "a.bc/(…": "a.bc/(",
    "a.bc/)…": "a.bc/)",
    "ab:ab:…": "ab:",
    "accents": "a\u0323\u0301\u0323\u0301",
    "one one…": "one ",
    "1,1,1…": "1,",
}
_MOST = {"json": MAX_JSON_MS, "hosts": float("inf"), "links": float("inf")}
"""What a text of nothing but links takes grows with what is found."""
_SECRETS = KnownSecrets()
for _number in range(5):
    _SECRETS.add(f"key-{_number}", f"sk-canary-{_number}-9f8e7d6c5b4a39281")
READERS: dict[str, Callable[[str], Any]] = {
    "links_in": links_in,
    "host_of": host_of,
    "numbers_in": numbers_in,
    "amounts_of": amounts_of,
    "plain_path": plain_path,
    "recipients_in": recipients_in,
    "redact": _SECRETS.redact,
}


def texts(size: int) -> dict[str, str]:
    """Return texts that have made readers slow, each with a link at its end to be found."""
    ends = " x.example"
    made = {name: (piece * size)[: size - len(ends)] + ends for name, piece in _SLOW.items()}
    made["hosts"] = "".join(f"a{number:x}.bc " for number in range(size))[:size]
    made["links"] = "".join(f"a://{number:x} " for number in range(size))[:size]
    return made


def json_of(size: int) -> str:
    """Return a JSON document of records, as a tool would return or be given one."""
    note = "Thank you for the order of last week, it will be sent as soon as the rest has come."
    rows = [
        {
            "id": number,
            "name": f"Name {number}",
            "mail": f"name{number}@b.example",
            "sum": round(number / 7, 2),
            "note": note,
        }
        for number in range(size // 120)
    ]
    return orjson.dumps(rows).decode()[:size]


def cost(read: Callable[[str], Any], text: str) -> float:
    """Return the milliseconds of CPU that reading takes, the best of three."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        read(text)
        best = min(best, time.process_time() - begun)
    return 1_000 * best


def main() -> int:
    """Print ms, the ratio to one pass over the text, and the growth from n to 4 n."""
    failed = 0
    print(f"{'reader':<11} {'text':<9} {'size':>9} {'ms':>8} {'x a pass':>9} {'n to 4n':>8}")
    for size in SIZES:
        quarter = texts(size // 4)
        named = {**texts(size), "json": json_of(size)}
        quarter["json"] = json_of(size // 4)
        for reader, read in READERS.items():
            for name, text in named.items():
                floor = max(cost(str.casefold, text), 1e-3)
                spent = cost(read, text)
                growth = spent / max(cost(read, quarter[name]), 1e-3)
                most = _MOST.get(name, MAX_MS)
                bad = spent > most or (spent > 1 and growth > MAX_GROWTH)
                failed += bad
                print(
                    f"{reader:<11} {name:<9} {size:>9,} {spent:>8.2f} {spent / floor:>9.1f} "
                    f"{growth:>8.1f}{'  too slow' if bad else ''}"
                )
    print(f"{failed} too slow (at most {MAX_MS:g} ms, {MAX_JSON_MS:g} ms for 1 MB of JSON)")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
