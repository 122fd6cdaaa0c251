"""Values: the one parser for each kind of value, so that what is judged is what is done.

A policy that reads a host otherwise than the tool that connects to it can be walked around. So
hosts, links, amounts, recipients and paths are read here, and nowhere else. Every function takes
any text and needs time in proportion to its length; what it cannot read with certainty it says so,
by `None`.
"""

from __future__ import annotations

import contextlib
import html
import math
import os.path
import re
import unicodedata
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote


def _each(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# -- hosts -----------------------------------------------------------------------------------------

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+\-]{0,31})://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AUTHORITY_END = re.compile(r"[/?#]")
_SCHEME_WORDS = frozenset({"http", "https", "ws", "wss", "ftp", "file"})
"""Browsers read `https:443` as a scheme and a host, others as a host and a port."""
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){0,126}")
_NUMERIC_END = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$")
_NUMBER = re.compile(r"0x[0-9a-f]{0,8}|[0-9]{1,12}")
_MAX_HOST = 253
_MAX_AUTHORITY = 2_000
_MAX_PORT = 65_535
_OCTETS = 4
"""How many numbers an IPv4 address can be written with."""

IPAddress = IPv4Address | IPv6Address


class Address(NamedTuple):
    """An address on the network, taken apart."""

    scheme: str
    """Lower-case; empty if none is written."""
    user: str | None
    """Name and password, as they are written."""
    host: str
    """In the one spelling in which hosts are compared and connected to."""
    port: int | None
    rest: str
    """Path, query and fragment, as they are written."""


def host_of(address: str) -> str | None:
    """Return the host that an address leads to; None if it cannot be told with certainty.

    The result is in one spelling: lower-case ASCII (`xn--…` for other letters) without a dot at its
    end, and numeric addresses in their usual form. The tool `web` connects to this very host.
    """
    parts = address_of(address)
    return parts.host if parts is not None else None


def address_of(address: str) -> Address | None:
    """Take an address apart; None if programs could disagree about its host.

    An address without a scheme is read as one with it: its host goes up to the first `/`, `?` or
    `#`. Browsers take a backslash for a slash and drop tabs and line breaks, and other programs do
    not, so that addresses with these have no certain host.
    """
    text = address.strip()
    if _CONTROL.search(text):
        return None
    scheme = ""
    begins = _SCHEME.match(text)
    if begins is not None:
        scheme, text = begins.group(1).lower(), text[begins.end() :]
    elif text.startswith("//"):
        text = text[2:]
    elif _is_ipv6(text):
        text = f"[{text}]"
    end = _AUTHORITY_END.search(text)
    at = end.start() if end is not None else len(text)
    authority, rest = text[:at], text[at:]
    if len(authority) > _MAX_AUTHORITY or "\\" in authority or authority.count("@") > 1:
        return None
    user, has_user, place = authority.rpartition("@")
    host, colon, digits = _port_apart(place)
    port = None
    if colon:
        if digits and not (digits.isascii() and digits.isdecimal() and len(digits) <= 5):
            return None
        if begins is None and (not digits or host.lower() in _SCHEME_WORDS):
            return None
        port = int(digits) if digits else None
        if port is not None and port > _MAX_PORT:
            return None
    plain = _plain_host(host)
    return Address(scheme, user if has_user else None, plain, port, rest) if plain else None


def ip_of(host: str) -> IPAddress | None:
    """Return the address that a host is, in any of the ways to write one; None for a name."""
    bare = host.removesuffix(".")
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    try:
        return ip_address(bare)
    except ValueError:
        return _ipv4(bare.lower())


def _is_ipv6(text: str) -> bool:
    if text.count(":") < 2 or len(text) > 45:
        return False
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _port_apart(place: str) -> tuple[str, str, str]:
    if place.startswith("["):
        host, bracket, behind = place.partition("]")
        if behind and not behind.startswith(":"):
            return "", "", ""
        return host + bracket, behind[:1], behind[1:]
    return place.partition(":")


def _plain_host(host: str) -> str | None:
    """Return a host in its one spelling; None if it is none."""
    if host.startswith("["):
        return _plain_ipv6(host)
    if "%" in host:
        try:
            host = unquote(host, errors="strict")
        except UnicodeDecodeError:
            return None
    if not host.isascii():
        mapped = _to_ascii(host)
        if mapped is None:
            return None
        host = mapped
    host = host.lower().removesuffix(".")
    if len(host) > _MAX_HOST or not _NAME.fullmatch(host):
        return None
    if not _NUMERIC_END.search(host):
        return host
    # What ends in a number is an IPv4 address or nothing: no name on the internet ends so.
    numbers = _ipv4(host)
    return str(numbers) if numbers is not None else None


def _plain_ipv6(host: str) -> str | None:
    if not host.endswith("]"):
        return None
    try:
        address = IPv6Address(host[1:-1])
    except ValueError:
        return None
    if address.scope_id is not None:
        return None
    # The very address that is connected to, whatever it is wrapped in.
    return str(address.ipv4_mapped or address)


def _to_ascii(host: str) -> str | None:
    """Return a name with other letters as the domain name system knows it, as browsers do."""
    import idna

    try:
        mapped = idna.uts46_remap(host, std3_rules=False, transitional=False)
        return mapped if mapped.isascii() else idna.encode(mapped).decode("ascii")
    except UnicodeError:
        return None


def host_with_all_letters(host: str) -> str:
    """Return a host with `xn--…` as the letters that it stands for, as people read it."""
    import idna

    try:
        return idna.decode(host)
    except UnicodeError:
        return host


def _ipv4(host: str) -> IPv4Address | None:
    """Read `2130706433`, `0x7f.1` and `0177.0.0.1` as C libraries do."""
    parts = host.split(".", _OCTETS)
    if len(parts) > _OCTETS or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    try:
        values = [_octet(part) for part in parts]
    except ValueError:  # such as 09, which is octal and has no such digit
        return None
    *before, last = values
    if any(octet > 0xFF for octet in before) or last >= 256 ** (_OCTETS + 1 - len(values)):
        return None
    return IPv4Address(sum(octet << 8 * (3 - at) for at, octet in enumerate(before)) + last)


def _octet(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if text.startswith("0") else int(text)


# -- paths -----------------------------------------------------------------------------------------


_MAX_PATH = 4_096
"""Characters: no system opens a longer path."""
_UNCERTAIN_PATH = re.compile(r"[\x00-\x1f\x7f\\]|%(?:25)*(?:2e|2f|5c|00)|\A\s*file:", re.IGNORECASE)
"""Control characters, backslashes, encoded dots and slashes: some programs decode them."""
_WAY_UP = re.compile(r"(?:^|/)\.\.(?=/|$)")


def plain_path(path: str) -> str | None:
    """Return a path without `~`, `.`, `..` and repeated slashes; None if programs could disagree.

    Letters are composed (NFC). Links are not followed. Some programs take a backslash for a slash,
    decode `%2e` and `%2f`, or read full-width dots and slashes as plain ones, so that a path with
    these has no certain meaning.
    """
    if len(path) > _MAX_PATH or _UNCERTAIN_PATH.search(path):
        return None
    if not path.isascii():
        path = unicodedata.normalize("NFC", path)
        folded = unicodedata.normalize("NFKC", path)
        if "\\" in folded or len(_WAY_UP.findall(folded)) != len(_WAY_UP.findall(path)):
            return None
    if path.startswith("~"):
        with contextlib.suppress(RuntimeError):
            path = str(Path(path).expanduser())
    plain = os.path.normpath(path)
    # POSIX keeps two slashes at the beginning apart from one, and no system in use does.
    return f"/{plain.lstrip('/')}" if plain.startswith("//") else plain


# -- numbers ---------------------------------------------------------------------------------------

_MORE_DIGITS = r"\d*+(?:[,.']\d++| \d{3}(?!\d))*+"
_SCALE = r"\s?([km])?(?![\w/-])"
_NUMBER_ALONE = re.compile(rf"(\d{_MORE_DIGITS}){_SCALE}", re.IGNORECASE)
_NUMBER_WITHIN = re.compile(
    rf"(\d)(?:(?<=([\w.,/-])\d){_MORE_DIGITS}|({_MORE_DIGITS}){_SCALE})", re.IGNORECASE
)
"""A number, or digits with a sign before them: parts of dates, of account numbers and of names."""
_BETWEEN_NUMBERS = bytes(
    ord("\0") if code < 128 and not re.match(r"[\w\s.,'/-]", chr(code)) else code
    for code in range(256)
)
"""Turns the ASCII signs that no number has in it, before it or behind it into zero bytes."""
_UNITS = {
    word: number
    for number, word in enumerate(
        _each(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
            "fifteen sixteen seventeen eighteen nineteen"
        )
    )
}
_TENS = {
    word: 10 * number
    for number, word in enumerate(
        _each("twenty thirty forty fifty sixty seventy eighty ninety"), start=2
    )
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_COUNTING = (*_UNITS, *_TENS, *_SCALES)


def number_of(text: str) -> float | None:
    """Read a number as people write it, such as `1,000.00`, `1.000,00` or `10k`."""
    match = _NUMBER_ALONE.fullmatch(text.strip().lstrip("$€£"))
    return _value(*match.groups()) if match is not None else None


def numbers_in(text: str) -> set[float]:
    """Return the numbers in a text, in digits and in English words."""
    numbers: set[float] = set()
    text = _each_piece_once(text)
    for first, before, more, scale in set(_NUMBER_WITHIN.findall(text)):
        if before:
            continue
        digits = first + more
        if not scale and digits.isdecimal() and len(digits) <= _MAX_AMOUNT:
            numbers.add(float(digits))  # as most are
        elif (value := _value(digits, scale)) is not None:
            numbers.add(value)
    lowered = text.casefold()
    present = [word for word in _COUNTING if word in lowered]
    if present:
        word = f"(?:{'|'.join(sorted(present, key=len, reverse=True))})"
        spelled = re.compile(rf"\b{word}(?:[\s-]{{1,4}}(?:and\s{{1,4}})?{word}){{0,24}}\b")
        numbers.update(
            _spelled(re.split(r"[\s-]+", phrase)) for phrase in set(spelled.findall(lowered))
        )
    return numbers


def _each_piece_once(text: str) -> str:
    """Return the pieces of a text that hold numbers of their own, each once and in any order."""
    pieces = text.encode("utf-8", "surrogatepass").translate(_BETWEEN_NUMBERS).split(b"\0")
    return b"\0".join(set(pieces)).decode("utf-8", "surrogatepass")


def _value(digits: str, scale: str | None) -> float | None:
    if len(digits) > _MAX_AMOUNT:
        return None
    if not scale and digits.replace(".", "", 1).isdecimal():
        return round(float(digits), 2)
    text = digits.replace(" ", "").replace("'", "")
    mark = max(text.rfind("."), text.rfind(","))
    if mark >= 0:
        behind = len(text) - mark - 1
        sign = text[mark]
        # Three digits behind a sign that is not the only kind, or is repeated, group thousands.
        grouped = behind == 3 and (sign == "," or text.count(sign) > 1)
        whole = text if grouped else text[:mark]
        rest = "" if grouped else text[mark + 1 :]
        text = whole.replace(",", "").replace(".", "") + (f".{rest}" if rest else "")
    try:
        value = float(text)
    except ValueError:
        return None
    return round(value * {"k": 1e3, "m": 1e6}.get((scale or "").casefold(), 1), 2)


def _spelled(words: Iterable[str]) -> float:
    total = current = 0
    for word in words:
        if word in _SCALES:
            scale = _SCALES[word]
            if scale == 100:
                current = (current or 1) * scale
            else:
                total, current = total + (current or 1) * scale, 0
        else:
            current += _UNITS.get(word, 0) + _TENS.get(word, 0)
    return float(total + current)


# -- amounts ---------------------------------------------------------------------------------------

_MAX_AMOUNT = 200
"""Characters: what is longer is no amount."""
_SEPARATORS = str.maketrans(
    {"٫": ".", "٬": ",", "،": ",", "−": "-", "–": "-", "﹣": "-", "’": "'", "‘": "'", "`": "'"}
    | dict.fromkeys("\u00a0\u2007\u2009\u202f", " ")
)
_FACTORS = {
    **_SCALES,
    **dict.fromkeys(("k", "tsd", "thousands", "tausend", "mille"), 1_000),
    **dict.fromkeys(("m", "mio", "mn", "mln", "millions", "millionen", "million"), 1_000_000),
    **dict.fromkeys(("bn", "mrd", "billions", "milliarde", "milliarden"), 1_000_000_000),
    **dict.fromkeys(("lakh", "lakhs", "lac"), 100_000),
    **dict.fromkeys(("crore", "crores"), 10_000_000),
    **dict.fromkeys("万萬", 10_000),
    **dict.fromkeys("億亿", 100_000_000),
}
_CURRENCIES = frozenset(
    _each(
        "aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd btn "
        "bwp byn bzd cad cdf chf clp cny cop crc cuc cup cve czk djf dkk dop dzd egp ern etb eur "
        "fjd fkp gbp gel ghs gip gmd gnf gtq gyd hkd hnl hrk htg huf idr ils inr iqd irr isk jmd "
        "jod jpy kes kgs khr kmf kpw krw kwd kyd kzt lak lbp lkr lrd lsl lyd mad mdl mga mkd mmk "
        "mnt mop mru mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd omr pab pen pgk php pkr pln "
        "pyg qar ron rsd rub rwf sar sbd scr sdg sek sgd shp sle sos srd ssp stn svc syp szl thb "
        "tjs tmt tnd top try ttd twd tzs uah ugx usd uyu uzs ved ves vnd vuv wst xaf xcd xcg xof "
        "xpf yer zar zmw zwg zwl euro euros dollar dollars pound pounds franc francs franken yen "
        "yuan rupee rupees rs peso pesos krone kroner kronor zloty real reais rmb fr kr zł kč лв "
        "руб us$ a$ c$ r$ hk$ nz$ s$ au$ ca$ 元 円 圆 圓 $ € £ ¥ ₣ ₤ ₦ ₩ ₪ ₫ ₭ ₮ ₱ ₲ ₴ ₵ ₸ ₹ ₺ ₼ "
        "₽ ₾ ⃀ ฿ ৳ ៛ ֏ ؋ 원 won рублей рубля рубль гривень koruna koruny korun złotych złote "
        "forint ft lei leu ريال درهم جنيه lira shekel"
    )
)
"""Of states. An amount of anything else (`BTC`, `kg`) says nothing about how much money it is."""
_WORDS_TOO = frozenset(_each("all bob cup gel mad mop pen real sos top try"))
_GROUPED = re.compile(
    r"([1-9]\d{0,2}([.,' _])\d{3}(?:\2\d{3})*)(?:(?!\2)[.,](\d+))?"
    r"|([1-9]\d?(?:,\d{2})+,\d{3})(?:\.(\d+))?"
)
"""Thousands, as in most countries or as in India, and a fraction."""
_UNGROUPED = re.compile(r"\d+|(?:0|[1-9]\d*)(?:\.\d+|,\d{1,2})|\d+(?:\.\d+)?e\+?\d{1,3}")
_IN_DIGITS = re.compile(
    r"(?P<sign>[+-]?) ?(?:(?P<before>[^\d\s.,'+-]+) *(?P<inner>[+-]?))?"
    r"(?P<number>\d(?:[\d.,'_ ]*\d)?(?:e\+?\d{1,3})?)(?:[.,]-{1,2})?"
    r" ?(?P<after>[^\d.,'+-]*)"
)
_UNIT = re.compile(r"[^\W\d_]+\$?|[^ ]")
_HYPHEN = re.compile(r"(?<=[a-z])-(?=[a-z])")
_OTHER_SPACE = re.compile(r"[^\S ]")
_UNSEEN = frozenset({"Cf", "Cc"})


def amounts_in(value: Any) -> list[float] | None:
    """Return the amount in a number or a text, none for a currency by itself; None if unreadable.

    A text is one amount: `"9000 EUR"`, `"EUR 9.000,00"`, `"9k"`, `"1,5 Mio"`, with digits of any
    script or in English words (`"nine thousand"`), and at most one currency before or after it.
    Digits are grouped as people group them, or not at all. Where nothing is there (`None`, an empty
    text), there are no amounts. `1.000` and `1,000` can each be read in two ways: they are taken
    for one thousand, the larger of the two, since amounts are held against bounds.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return _amounts_in(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        return [float(value)]
    except (OverflowError, ValueError):
        return None


def _amounts_in(text: str) -> list[float] | None:
    if len(text) > _MAX_AMOUNT:
        return None
    plain = _plain_digits(text)
    if plain is None or _OTHER_SPACE.search(plain):
        return None
    if not plain:
        return []
    if plain in _CURRENCIES:
        # Some codes of currencies are words: "all" is no currency if no number stands beside it.
        return None if plain in _WORDS_TOO else []
    value = _in_digits(plain) if any(map(str.isdecimal, plain)) else _in_words(plain)
    return None if value is None else [value]


def _in_digits(text: str) -> float | None:
    """Read a number in digits, with a factor behind it and a currency on either side."""
    match = _IN_DIGITS.fullmatch(text)
    if match is None or (match["sign"] and match["inner"]):
        return None
    value = _larger_reading(match["number"])
    if value is None:
        return None
    units = _UNIT.findall(match["after"])
    currencies = [match["before"]] if match["before"] else []
    if units and units[-1] in _CURRENCIES:
        currencies.append(units.pop())
    if len(currencies) > 1 or not _CURRENCIES.issuperset(currencies):
        return None
    if len(units) > 1 and not (len(units) == 2 and units[0] == "hundred"):
        return None
    for unit in units:
        if unit not in _FACTORS:
            return None
        value *= _FACTORS[unit]
    return -value if "-" in (match["sign"], match["inner"]) else value


def _in_words(text: str) -> float | None:
    """Read a number in English words, with a currency on either side."""
    negative = text.startswith("-")
    words = _UNIT.findall(_HYPHEN.sub(" ", text[1:] if text[0] in "+-" else text))
    if words and words[0] in _CURRENCIES:
        del words[0]
    elif words and words[-1] in _CURRENCIES:
        del words[-1]
    value = _english(words)
    return None if value is None else float(-value if negative else value)


def _english(words: list[str]) -> int | None:
    """Return the number that words are, in the order in which English puts them."""
    if words == ["zero"]:
        return 0
    if words[:1] == ["a"] and len(words) > 1 and words[1] in _SCALES:
        words = ["one", *words[1:]]
    elif words and words[0] in _SCALES:
        words = ["one", *words]
    total, at, last = 0, 0, math.inf
    while at < len(words):
        if total and words[at] == "and":
            at += 1
        part, at = _below_thousand(words, at)
        scale = _SCALES.get(words[at], 0) if at < len(words) else 1
        # Each is smaller than the one before: nobody says "five thousand thousand".
        if not part or not 0 < scale < last or scale == 100:
            return None
        total, at, last = total + part * scale, at + 1, scale
    return total or None


def _below_thousand(words: list[str], at: int) -> tuple[int, int]:
    """Return the number up to the next thousand, and where it ends; 0 if there is none."""
    value, at = _below_hundred(words, at)
    if not value or words[at : at + 1] != ["hundred"]:
        return value, at
    value, at = 100 * value, at + 1
    rest, end = _below_hundred(words, at + 1 if words[at : at + 1] == ["and"] else at)
    return (value + rest, end) if rest else (value, at)


def _below_hundred(words: list[str], at: int) -> tuple[int, int]:
    word = words[at] if at < len(words) else ""
    if word not in _TENS:
        value = _UNITS.get(word, 0)
        return value, at + (1 if value else 0)
    unit = _UNITS.get(words[at + 1], 0) if at + 1 < len(words) else 0
    return (_TENS[word] + unit, at + 2) if 0 < unit < 10 else (_TENS[word], at + 1)


def _plain_digits(text: str) -> str | None:
    """Return a text with digits of any script as ASCII; None if it has numerals of other kinds."""
    text = text.strip().casefold().removesuffix(".")
    if text.isascii():
        return text
    plain: list[str] = []
    for char in text.translate(_SEPARATORS):
        digit = unicodedata.decimal(char, None)
        if digit is not None:
            plain.append(str(digit))
        elif char in _FACTORS:
            plain.append(f" {char} ")
        elif unicodedata.numeric(char, None) is not None:
            return None  # such as ½, ² and 九: what a tool makes of them nobody knows
        elif unicodedata.category(char) in _UNSEEN:
            return None
        else:
            plain.append(unicodedata.normalize("NFKC", char).lower())
    return "".join(plain).strip()


def _larger_reading(text: str) -> float | None:
    """Return the value of digits and separators, the larger one where there are two."""
    grouped = _GROUPED.fullmatch(text)
    if grouped is not None:
        whole = re.sub(r"\D", "", grouped[1] or grouped[4])
        return float(f"{whole}.{grouped[3] or grouped[5] or 0}")
    return float(text.replace(",", ".")) if _UNGROUPED.fullmatch(text) else None


# -- recipients ------------------------------------------------------------------------------------

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)
_MAX_RECIPIENTS = 4_096
"""Characters of one text."""
_MAX_LOCAL = 64
_RECIPIENT_PIECE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[<>()",;]|[^<>()",;]+')
_SIMPLE_ADDRESS = re.compile(
    r"[A-Za-z0-9._+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,3}[A-Za-z]{2,24}|[A-Za-z0-9]{1,64}"
)
"""Most mail addresses, names and accounts: these need no second look."""
_ANGLE = re.compile(r"([^<>]*)<([^<>]*)>")
_SPACES = re.compile(r"\s+")
_LOCAL_PART = re.compile(r"[^\s\"(),:;<>@\[\]\\!%?|]+")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}|=\?")
_UNCERTAIN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that a recipient has none of: some programs break a line at them."""


def recipients_in(text: str) -> tuple[str, ...] | None:
    """Return the recipients that a text names, each in one form; None if programs could disagree.

    A text may name several, separated by `,` or `;`. `Name <address>` means the address. A mail
    address is lower-case, its host in the form of `host_of`. Anything else (a name, an account, a
    channel) stays as it is, without white space around it. Full-width and styled letters are plain
    ones (NFKC), and characters that nobody sees are removed.
    """
    if _SIMPLE_ADDRESS.fullmatch(text):
        return (text.lower() if "@" in text else text,)
    plain = plain_name(text)
    parts = _recipient_parts(plain) if plain else None
    if not parts:
        return None
    recipients: dict[str, None] = {}
    for part in parts:
        recipient = _recipient(part)
        if recipient is None:
            return None
        recipients[recipient] = None
    return tuple(recipients)


def plain_name(text: str) -> str | None:
    """Return a text in the form in which names are compared; None if it can have none."""
    text = text.strip()
    if len(text) > _MAX_RECIPIENTS:
        return None
    if text.isascii():
        return None if _CONTROL.search(text) else _SPACES.sub(" ", text)
    text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).strip()
    if any(unicodedata.category(char) in _UNCERTAIN for char in text):
        return None
    return _SPACES.sub(" ", text)


def _recipient_parts(text: str) -> list[str] | None:
    """Split a text at commas and semicolons, except in quotes; None if it is not plain where."""
    parts = [""]
    angle, brackets = False, 0
    for piece in _RECIPIENT_PIECE.findall(text):
        if piece == '"' or (piece == "<" and angle) or (piece == ">" and not angle):
            return None
        if piece in (",", ";"):
            if angle or brackets:
                return None
            parts.append("")
            continue
        angle = piece == "<" or (angle and piece != ">")
        brackets = max(0, brackets + (piece == "(") - (piece == ")"))
        parts[-1] += piece
    return None if angle else [name for part in parts if (name := part.strip())]


def _recipient(part: str) -> str | None:
    if _ENCODED.search(part):
        return None
    if "<" not in part:
        return _address(part)
    display = _ANGLE.fullmatch(part)
    if display is None:
        return None
    name, address = display[1].strip(" \"'"), _address(display[2].strip())
    if address is None:
        return None
    # A careless program takes the first address that it finds, or splits at every comma.
    if "@" in name and _address(name) != address:
        return None
    return None if ("," in name or ";" in name) and "@" not in address[1:] else address


def _address(text: str) -> str | None:
    """Return a mail address or another recipient in its one form."""
    if text[:7].lower() == "mailto:":
        text = text[7:].strip()
        if ":" in text:
            return None
    if not text or any(sign in text for sign in '"<>|'):
        return None
    if "@" not in text[1:]:
        return text
    local, _, domain = text.rpartition("@")
    if len(local) > _MAX_LOCAL or len(domain) > _MAX_HOST or not _LOCAL_PART.fullmatch(local):
        return None
    host = None if domain.startswith("[") else _plain_host(domain)
    return f"{unicodedata.normalize('NFKC', local.lower())}@{host}" if host else None


# -- links -----------------------------------------------------------------------------------------

_FORMS = (
    (0x00A0, 0x00FF), (0x0132, 0x02FF), (0x037A, 0x037E), (0x1D2C, 0x1DBF), (0x1FBD, 0x1FFE),
    (0x2000, 0x24FF), (0x2A74, 0x2A76), (0x2C7C, 0x2C7D), (0x3000, 0x33FF), (0xA7F2, 0xA7F4),
    (0xFB00, 0xFB29), (0xFE10, 0xFE6F), (0xFF00, 0xFFEF), (0x10780, 0x107BA), (0x1CCD6, 0x1CCF9),
    (0x1D400, 0x1D7FF), (0x1F100, 0x1F1FF), (0x1FBF0, 0x1FBF9),
)  # fmt: skip
"""Where the forms of ASCII letters and signs stand in Unicode."""
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_BROKEN_HINT = re.compile(r"[\[({<]\s{0,3}(?:[.:/@]|dot|pun[kt]|at)", re.IGNORECASE)
_BROKEN = re.compile(
    r"\s{0,3}[\[({<]\s{0,3}(\.|://|:|/|@|dot|punkt|punto|at)\s{0,3}[\])}>]\s{0,3}", re.IGNORECASE
)
_MENDED = {"dot": ".", "punkt": ".", "punto": ".", "at": "@"}
_HIDDEN_SCHEME = re.compile(r"\bh(?:xx|\*\*|__)p(s?)(?=:)", re.IGNORECASE)
_STOPS = re.compile(r"(?<=[A-Za-z0-9])[\u3002\uff61](?=[A-Za-z0-9])")
_ENCODED_RUN = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_ANY_LINK = re.compile(r"\.(?:[^\W\d_]|\d{1,3}\.\d)|//|\\\\|%[0-9A-Fa-f]{2}|:(?<=[A-Za-z]:)[^\s:]")
"""Something that no link is without."""
_SIMPLE = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9._+\-]{0,63}@)?"
    r"[A-Za-z0-9][A-Za-z0-9\-]{0,62}\.(?:[A-Za-z0-9\-]{1,63}\.){0,8}([A-Za-z]{2,24})"
    r"|[A-Za-z][A-Za-z0-9+\-]{0,31}://[A-Za-z0-9.\-]{0,252}[A-Za-z0-9]"
    r"(?:/(?:[A-Za-z0-9./?=&#~\-]{0,200}[A-Za-z0-9/=])?)?"
)
"""Links that need no second look; most are such."""
_SCHEME_MARK = re.compile(r":(?://|\\\\)")
_SCHEME_START = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*\Z")
_WORD_AND_COLON = re.compile(r"(?<![A-Za-z0-9+.\-])([A-Za-z][A-Za-z0-9+.\-]{1,40}+):(?=[^\s:])")
_SCHEMES = frozenset(
    _each(
        "javascript vbscript livescript mailto data tel sms smsto mms file blob about intent "
        "magnet xmpp sip sips skype callto facetime whatsapp tg bitcoin ethereum news cid mid urn "
        "feed view-source geo maps market steam slack zoommtg msteams jar ldap"
    )
)
"""Schemes that need no slashes."""
_SCHEME_FAMILIES = ("x-", "ms-", "web+")
_RUN = re.compile(r"(?<![\w.%+@\-])[\w%+@\-]*+\.[\w.%+@\-]*+")
_SCRIPTS_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)
_DOTS = re.compile(r"\.{2,}")
_TOP = re.compile(r"xn--[a-z0-9\-]{1,59}|[^\W\d_]{2,63}", re.IGNORECASE)
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_BEHIND = re.compile(r":[0-9]{1,5}(?=[/?#\\]|\Z)|[/?#\\]")
_BRACKET = re.compile(r"[()\[\]{}]")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_FILE_ENDINGS = frozenset(
    _each(
        "txt md csv tsv pdf doc docx odt ods odp xls xlsx ppt pptx rtf tex epub jpg jpeg png gif "
        "bmp tif tiff webp svg heic mp3 mp4 wav ogg flac mkv avi py pyc js ts jsx tsx css scss "
        "cpp hpp java php bash ps1 bat sql json jsonl yaml yml toml ini "
        "cfg conf xml html htm log zip gz tar tgz bz2 xz rar 7z iso exe dll bin dat db sqlite "
        "bak tmp lock ics vcf eml ipynb parquet env diff patch"
    )
)
"""What a dot and letters mean in a file's name rather than a host's."""
_MIN_LINK = 4
_MAX_LINK = 2_000
_MAX_RUN = 300
"""Characters: no name of a host and no mail address is longer."""
_MAX_SCHEME = 32
_MAX_INSIDE = 200
_MAX_OPEN = 32
_LINK_END = ".,;:!?'*_~"
_NAME_ENDS = ".-+_%@"


def links_in(text: str) -> list[str]:
    """Return every link and mail address in a text that a reader's mail program might make one.

    With a scheme of any kind, `//host/…`, `www.…`, and bare hosts with or without a path, unless
    they are plainly the names of files (`notes.txt`); in prose, Markdown, HTML and JSON. What hides
    a link is undone first: invisible characters, full-width letters, entities, `hxxp`, `a[.]org`.
    Letters that merely look alike stay as they are. Links come in their order, each once.
    """
    links: dict[str, None] = {}
    for chunk in _chunks_with_links(_as_followed(text)):
        simple = _SIMPLE.fullmatch(chunk) if len(chunk) <= _MAX_RUN else None
        if simple is None:
            links.update(dict.fromkeys(_links_of(chunk)))
        elif simple.group(1) is None or "@" in chunk or not _is_file(chunk.split(".")):
            links[chunk] = None
    return list(links)


@cache
def _ascii_forms() -> dict[int, str]:
    """Return full-width, styled, circled and other forms of ASCII letters and signs."""
    return {
        code: plain
        for first, last in _FORMS
        for code in range(first, last + 1)
        if (plain := unicodedata.normalize("NFKC", chr(code))).isascii()
    }


def _as_followed(text: str) -> str:
    """Return a text as the program reads it that follows its links."""
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity.group()), text)
    if not text.isascii():
        text = _INVISIBLE.sub("", text)
        text = _STOPS.sub(".", text.translate(_ascii_forms()))
    if _BROKEN_HINT.search(text):
        text = _BROKEN.sub(lambda sign: _MENDED.get(sign[1].lower(), sign[1]), text)
    if any(sign in text for sign in ("xx", "XX", "xX", "Xx", "**", "__")):
        text = _HIDDEN_SCHEME.sub(r"http\1", text)
    return text


def _chunks(text: str) -> list[str]:
    """Return what stands between spaces, quotes, bars and the brackets of HTML."""
    for sign in '<>"`|':
        text = text.replace(sign, " ")
    return text.split()


def _chunks_with_links(text: str) -> dict[str, None]:
    """Return the chunks of a text that may be links, each once; few texts have many of them."""
    links: dict[str, None] = {}
    for piece in filter(_ANY_LINK.search, dict.fromkeys(text.replace('"', "\n").split("\n"))):
        for chunk in _chunks(piece):
            if len(chunk) >= _MIN_LINK and _ANY_LINK.search(chunk):
                links[chunk] = None
    return links


def _decoded(text: str) -> str:
    """Return a text with its `%…` decoded, as a browser does."""

    def characters(run: re.Match[str]) -> str:
        return bytes.fromhex(run.group().replace("%", "")).decode("utf-8", "replace")

    return _ENCODED_RUN.sub(characters, text)


def _links_of(chunk: str) -> Iterator[str]:
    """Return the links in a piece of text without spaces."""
    if "://" in chunk or ":\\\\" in chunk:
        yield from _with_scheme(chunk)
        return
    if ":" in chunk:
        yield from _without_slashes(chunk)
    yield from _without_scheme(chunk)
    if "%" in chunk:
        decoded = _decoded(chunk)
        if decoded != chunk:
            for piece in (chunk for chunk in _chunks(decoded) if len(chunk) >= _MIN_LINK):
                yield from _with_scheme(piece) if "://" in piece else _without_scheme(piece)


def _without_slashes(chunk: str) -> Iterator[str]:
    """Return links such as `mailto:…` and `javascript:…`."""
    words = {word.lower() for word in _WORD_AND_COLON.findall(chunk)}
    known = {word for word in words if word in _SCHEMES or word.startswith(_SCHEME_FAMILIES)}
    if not known:
        return
    end = 0
    for begins in _WORD_AND_COLON.finditer(chunk):
        if begins.start() >= end and begins.group(1).lower() in known:
            link = _trimmed(chunk[begins.start() : begins.start() + _MAX_LINK])
            end = begins.start() + len(link)
            yield link


def _with_scheme(chunk: str) -> Iterator[str]:
    """Return a link, and the links inside of it: who follows the one may be sent to the others."""
    starts: list[int] = []
    for mark in _SCHEME_MARK.finditer(chunk):
        window = chunk[max(0, mark.start() - _MAX_SCHEME) : mark.start()]
        scheme = _SCHEME_START.search(window)
        # Without a scheme, what follows is still an address to a lenient program.
        starts.append(mark.start() - len(scheme.group()) if scheme else mark.start() + 1)
        if len(starts) > _MAX_INSIDE:
            # Nobody writes such a link; each piece of it counts as one.
            yield from (chunk[at : at + _MAX_LINK] for at in range(0, len(chunk), _MAX_LINK))
            return
    yield from _without_scheme(chunk[: starts[0]])
    whole = _trimmed(chunk[starts[0] : starts[0] + _MAX_LINK])
    yield whole
    for start, end in zip(starts, [*starts[1:], len(chunk)], strict=True):
        link = _trimmed(chunk[start : min(end, start + _MAX_LINK)])
        if link != whole:
            yield link
        yield from _without_scheme(chunk[start + len(link) : end])


def _without_scheme(chunk: str) -> Iterator[str]:
    """Return hosts and mail addresses that stand for themselves."""
    covered = 0
    for run in _RUN.finditer(chunk):
        start, end = run.span()
        if start < covered:
            continue  # a part of the path of another one
        for link, link_end in _links_in_run(chunk, start, end):
            covered = max(covered, link_end)
            yield link
        if chunk.isascii():
            continue
        # Words of these scripts stand beside a host without a space between them.
        for cut in _SCRIPTS_WITHOUT_SPACES.finditer(chunk, start, end):
            yield from (link for link, _ in _links_in_run(chunk, start, cut.start()))
            start = cut.end()
        if start != run.start():
            yield from (link for link, _ in _links_in_run(chunk, start, end))


def _links_in_run(chunk: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Return the links in a run of letters, dots and dashes, each with its path and its end."""
    relative = chunk[max(0, start - 2) : start] in ("//", "\\\\")
    # A longer name leads nowhere; its end might be cut off and followed.
    start = max(start, end - _MAX_RUN)
    run = chunk[start:end]
    path = chunk[end : end + _MAX_LINK] if _BEHIND.match(chunk, end) else ""
    *before, last = _DOTS.split(run)
    for name in before:
        link = _standing_alone(name.strip(_NAME_ENDS), "", relative=False)
        if link:
            yield link, end
    name = last.rstrip(_NAME_ENDS)
    if name != last:
        path = ""
    link = _standing_alone(name.lstrip(_NAME_ENDS), path, relative=relative and not before)
    if link:
        yield link, end + (len(_trimmed(link)) - len(link) + len(path) if path else 0)


def _standing_alone(name: str, path: str, *, relative: bool) -> str:
    """Return the link that a name and the path behind it are; empty if they are none."""
    user, at, host = name.rpartition("@")
    labels = host.split(".")
    named = len(labels) > 1 and all(labels) and _TOP.fullmatch(labels[-1]) is not None
    if at and user and named:
        return _trimmed(name + path)
    if at and not named:
        # Such as `evil.example@`, of which a program follows the host.
        host = next((part for part in name.split("@") if "." in part), "")
        return _standing_alone(host, "", relative=relative) if host else ""
    if named:
        bare = not path or (path[0] == ":" and "/" not in path)
        if bare and not relative and _is_file(labels):
            return ""
    elif not (_IPV4.fullmatch(host) and (path or relative)):
        return ""
    return _trimmed(f"//{host}{path}" if relative else host + path)


def _is_file(labels: list[str]) -> bool:
    return labels[-1].lower() in _FILE_ENDINGS and labels[0].lower() != "www"


def _trimmed(link: str) -> str:
    """Return a link without the punctuation of the sentence around it."""
    open_: list[str] = []
    for sign in _BRACKET.finditer(link):
        bracket = sign.group()
        if len(open_) > _MAX_OPEN:
            break
        if bracket not in _PAIRS:
            open_.append(bracket)
        elif open_ and open_[-1] == _PAIRS[bracket]:
            open_.pop()
        else:
            link = link[: sign.start()]
            break
    return link.rstrip(_LINK_END)
