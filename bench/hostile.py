"""Queries that nobody means well with: syntax of other languages, odd characters, extreme sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator

_SYNTAX = (
    '"', '""', '"""', '"unclosed', 'a"b"c', "'", "''", "\\", "\\'", "`", "*", "a*", "*a", "**",
    "^a", "-", "--", "- -a", "+a -b", "a:b", "text:cat", "NEAR", "NEAR(", "NEAR(cat dog, 2)",
    "NEAR/3", "AND", "OR", "NOT", "cat AND", "OR dog", "NOT NOT", "cat AND (dog OR", "((((",
    "))))", "{cat}", "[cat]", "col : cat", "^ ^ ^", "cat ^dog", "a + b", "{a b} : c",
    "rank MATCH 'bm25(1)'", "'; DROP TABLE entries; --", "1 OR 1=1", "' OR ''='",
    "x') UNION SELECT body FROM entries --", "%", "_", "%%%%", "?", "?1", "$1", "$$", ":name",
    "@name", "%s", "%(x)s", "{0}", "{}", "{{}}", "cat & dog", "cat | dog", "!cat", "cat <-> dog",
    "cat:*", "to_tsquery('cat')", "<2>", "::text", "(a+)+$", "(.*)*", "((a|a)*)*b", "[[:alpha:]]+",
    "(?=.*)+", "\\w{1,99999}", "a{65536}", "[", "(?", "../../etc/passwd", "$(true)", "${HOME}",
    "<script>alert(1)</script>", "&lt;&gt;", "file:///x", "since:yesterday", "before 99999-99-99",
    "on 31 February", "in 0 days", "10^99 years ago", "last last last Tuesday", "2024-02-30",
    "00/00/0000", "-1 weeks ago", "99999999999999999999", "1e999", "NaN", "null", "None", "true",
    "0", "0x41", "\u0661\u0662\u0663", "\u00b2\u00b3",
)  # fmt: skip
_SIGNS = (
    "\x00", "a\x00b", "\x00" * 40, "\x01\x02\x1b[31m", "\r\n\t\v\f", "\x7f", "\x85\u2028\u2029",
    "\ud800", "\udfff", "a\ud83d b", "\udc00\ud800", "caf\udce9", "\ufffe\uffff", "\U0010ffff",
    "\u200b", "\u200d\u200c\ufeff", "\u202ecat\u202c", "\u2066\u2067\u2069", "\u061c", "\u00ad",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "\u05e9\u05dc\u05d5\u05dd 123 cat",
    "\u732b\u306f\u3069\u3053", "\uace0\uc591\uc774", "\u0e41\u0e21\u0e27\u0e2d\u0e22\u0e39\u0e48",
    "\u043a\u043e\u0442 \u0438 \u043f\u0451\u0441",
    "\u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f", "stra\u00dfe", "\u0130stanbul", "\ufb01sh",
    "\u01c5", "\u1e9e", "\u03a3\u03c2\u03c3", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f",
    "\U0001f44d\U0001f3fd" * 50, "\U0001d4d0\U0001d4d1", "\U00020000\U0002a6d6", "e\u0301" * 30,
    "z" + "\u0301\u0317\u0334" * 60, "\u0300", "\u20dd", "\ufdfa" * 20, "\u3000\u00a0", "...",
    "?!?!", "\u2026\u2014\u201e\u201c", "!!!", ",;:.-", "the of and to", "what who where when",
    "I", "you", " ", "", "\n", "-1", "''' \"\"\" ```", "\u00e4" * 200, "\u1100\u1161\u11a8",
    "\u0f00\u0f0b",
)  # fmt: skip
_MEGABYTE = 1_000_000
_WORDS = (
    "cat", "dog", "house", "garden", "sister", "museum", "Lisbon", "yesterday", "when", "did",
    "who", "the", "of", "I", "you", "my", "last", "week", "Anna's", "it's", "2024", "May",
    "Tuesday", "quarter-final", "state-of-the-art", "U.S.A.", "naïve", "Ωmega", "42nd",
)  # fmt: skip


def extremes() -> Iterator[str]:
    """Yield the few queries that are as long as anybody could send."""
    yield "a" * _MEGABYTE
    yield "cat " * (_MEGABYTE // 4)
    yield '"' * _MEGABYTE
    yield "(" * _MEGABYTE
    yield " " * _MEGABYTE
    yield "\x00" * _MEGABYTE
    yield "\U0001f600" * (_MEGABYTE // 4)
    yield "e\u0301" * (_MEGABYTE // 3)
    yield "\u732b" * (_MEGABYTE // 3)
    yield "a*" * (_MEGABYTE // 2)
    yield '"a b" ' * (_MEGABYTE // 6)
    yield "1." * (_MEGABYTE // 2)
    yield "last " * (_MEGABYTE // 5)
    yield "in May " * (_MEGABYTE // 7)
    yield "2024-01-01 " * (_MEGABYTE // 11)
    yield "-'" * (_MEGABYTE // 2)
    yield " ".join(f"word{number}" for number in range(_MEGABYTE // 10))
    yield "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa! " * (_MEGABYTE // 63)


def queries(count: int, seed: int = 5) -> Iterator[str]:
    """Yield so many queries: the known bad ones first, then random mixtures of them."""
    dice = random.Random(seed)
    known = (*_SYNTAX, *_SIGNS)
    yield from known[:count]
    for _ in range(count - len(known)):
        yield _mixture(dice, known)


def _mixture(dice: random.Random, known: tuple[str, ...]) -> str:
    match dice.randrange(6):
        case 0:  # what is bad between what is not
            parts = [dice.choice(dice.choice((known, _WORDS))) for _ in range(dice.randint(1, 12))]
            return dice.choice((" ", "", " ", "\n")).join(parts)
        case 1:  # any characters at all, lone surrogates among them
            return "".join(chr(dice.randrange(0x110000)) for _ in range(dice.randint(1, 60)))
        case 2:  # ASCII signs
            return "".join(chr(dice.randrange(128)) for _ in range(dice.randint(1, 80)))
        case 3:  # one thing very often
            return dice.choice(known) * dice.choice((3, 17, 200, 2_000))
        case 4:  # an honest question with a wound
            words: list[str] = dice.choices(_WORDS, k=dice.randint(2, 10))
            words.insert(dice.randrange(len(words)), dice.choice(known))
            return " ".join(words)
        case _:  # long words, cut anywhere
            word = "".join(dice.choices(_WORDS, k=dice.randint(1, 400)))
            return word[dice.randrange(len(word)) :]
