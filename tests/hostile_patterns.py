"""Expressions that explode in other engines: known ones, and ones grown from three kinds."""

from __future__ import annotations

import random
from collections.abc import Iterator

KNOWN = [
    # What an attacker found: repeats that are unrolled, and a guard that unrolls to count.
    "(?:ab|cd){1000000}",
    "(?:" + "[ab]?" * 190 + "){99999}",
    "(?:(?:(?:a{200}){200}){200}){200}",
    r"((?s).*)",
    # OWASP, "Regular expression Denial of Service", and its list of patterns from real products.
    "^(a+)+$",
    "^([a-zA-Z]+)*$",
    "^(a|aa)+$",
    "^(a|a?)+$",
    "^(.*a){25}$",
    "(x+x+)+y",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    # CVE-2016-4055, CVE-2017-16021, CVE-2019-16769, CVE-2020-5243, CVE-2021-3777, CVE-2022-24999,
    # the outages of Stack Overflow (2016) and Cloudflare (2019), and others of their kinds.
    r"^(\-)?(?:(\d*)[. ])?(\d+)\:(\d+)(?:\:(\d+)(\.\d*)?)?$",
    r"(?:\s*(?:.*?=.*?)*?\s*)*$",
    r"^\s+|\s+$",
    r"(?:(?:\"|'|\]|\}|\\|\d|(?:nan|infinity|true|false|null|undefined|symbol|math)|\`|\-|\+)+[)]*;?((?:\s|-|~|!|{}|\|\||\+)*.*(?:.*=.*)))",
    r"^(?:(?:https?|ftp)://)?(?:\S+(?::\S*)?@)?(?:(?:[a-z0-9]-*)*[a-z0-9]+)(?:\.(?:[a-z0-9]-*)*[a-z0-9]+)*$",
    r"(\w+\s*)*:",
    r"(\d+,?)*;",
    r"<(\w+)(\s+\w+=\"[^\"]*\")*\s*/?>",
    r"^(\w+)*@(\w+)*\.com$",
    r"^\d*[0-9](|.\d*[0-9]|)*$",
    r"^[a-z0-9]+([-.][a-z0-9]+)*\.[a-z]{2,}$",
    r"(a*)*b",
    r"(?:a?){40}a{40}",
    r"(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)[^x]$",
    r"(?:.|\n)*?(?:.|\n)*?(?:.|\n)*?END",
    r"^(?=(a+))a*\1b$",
    r"(?<=a+)b",
    r"(a)\1+",
    r"(?P<x>a)(?P=x)",
    r"(?>a+)b",
    r"a++b",
    r"(?(1)a|b)",
    r"\p{L}{900}",
    r"[\p{L}\p{M}\p{N}]{500}",
    r"(?i)(ſ|K|é|ß){900}",
    r".{1000}{1000}",
    r"(?:.{1000}){1000}",
    r"(a|b)*a(a|b){400}c",
    r"(.{0,900})x(.{0,900})",
    r"\x{10FFFF}{1000}",
    r"\u0061{1000}",
    r"\Q" + "(" * 90,
    "(" * 500 + ")" * 500,
    "[" * 500,
    "(?:" * 300 + "a" + ")*" * 300,
    "(?:" * 300 + "a" + "?){2}" * 300,
    "a|" * 499,
    "|" * 999,
    "(?i)" * 200,
    "\\",
    "\\C",
    "\ud800",
    "\x00",
    "",
    "[^\\x00-\\x{10FFFF}]",
    "(?s).*" * 100,
]

_ATOMS = (
    "a",
    "b",
    "ab",
    ".",
    "x",
    r"\d",
    r"\w",
    r"\s",
    r"\W",
    "[ab]",
    "[^a]",
    "[a-z0-9]",
    r"\b",
    "^",
    "$",
    r"\p{L}",
    r"\pN",
    "é",
    "漢",
    r"\u00e9",
    "(?:a|aa)",
    "(?:a|ab)",
    "(a)",
    "a?",
    "a*",
    "",
    r"\.",
    r"\Z",
    r"\1",
    "(?=a)",
    "(?!b)",
    "(?<=a)",
    "😀",
    "[[:alpha:]]",
    r"[\s\S]",
    r"\x41",
    "(?i:K)",
    "-",
)
_REPEATS = (
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "??",
    "{2}",
    "{1,3}",
    "{0,20}",
    "{20}",
    "{100}",
    "{200}",
    "{500,}",
    "{1000}",
    "{1001}",
    "{9999}",
    "{99999}",
    "{1000000}",
    "{1,1000}",
    "{,5}",
    "*+",
    "{0}",
)


_MAX_LENGTH = 1_200


def _grown(random_: random.Random, depth: int) -> str:
    if depth == 0:
        return random_.choice(_ATOMS)
    count = random_.choice((1, 1, 2, 3))
    inner = [_grown(random_, depth - 1)[:_MAX_LENGTH] for _ in range(count)]
    match random_.randrange(5):
        case 0:
            return "(" + "|".join(inner) + ")" + random_.choice(_REPEATS)
        case 1:
            return "(?:" + "".join(inner) + ")" + random_.choice(_REPEATS)
        case 2:
            return "".join(inner) * random_.choice((1, 2, 10, 50))
        case 3:
            return inner[0] + random_.choice(_REPEATS) + "".join(inner[1:])
        case _:
            return "(?:" + "|".join(inner * random_.choice((1, 3))) + ")"


def hostile_patterns(count: int, seed: int = 1) -> Iterator[str]:
    """Yield the known ones and grown ones, `count` in all, some of them too long."""
    yield from KNOWN[:count]
    random_ = random.Random(seed)
    for _ in range(count - len(KNOWN)):
        yield _grown(random_, random_.choice((1, 2, 3, 4, 5, 6)))[:_MAX_LENGTH]


TEXTS = ("a" * 60 + "!", "ab" * 2_000, "aé漢 x" * 500, "x" * 5_000 + "\n" + "a" * 5_000)
"""What the expressions are held against."""
