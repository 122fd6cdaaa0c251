"""Saying: what a text names and asks for, read by rules and never by a model.

Two normal forms serve two questions. *Does a trusted text name this?* is answered strictly: letters
that merely look alike do not count. *Did an untrusted text bring this in?* is answered loosely:
look-alikes, invisible characters and spaces within it do not hide it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from asterism.types.deeds import DeedKind


def each(words: str) -> tuple[str, ...]:
    """Return the words of a list."""
    return tuple(words.split())


# -- normal forms ----------------------------------------------------------------------------------

_ALIKE = str.maketrans(
    "авеёзікмнорсуухѕјԁԛԝһӏαβεικνορτυχ",
    "aBee3iKMHopcyyxsjdqwhlaBeiKvoptux".casefold(),
)
"""Cyrillic and Greek letters that are drawn like Latin ones."""
_SQUEEZED = str.maketrans("", "", " \t\r\n-\u00a0\u2010\u2011\u2013'\"")
_JOINS = "@._+-/"
"""Signs that make one name of what stands on both sides."""


_RUN_ON = re.compile(r"(?<=[a-z][.!?])(?=[A-Z][a-z])")


def sentences_apart(text: str) -> str:
    """Return a text with the spaces that its author forgot between sentences."""
    return _RUN_ON.sub(" ", text)


def strict(text: str) -> str:
    """Return a text with one kind of spaces and without capitals."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.casefold().split())


def loose(text: str) -> str:
    """Return a text as an eye reads it."""
    if not text.isascii():
        text = _FOREIGN.sub(_as_seen, text)
    return " ".join(text.casefold().split())


_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_UNSEEN = frozenset({"Cf", "Mn", "Me"})


def _as_seen(run: re.Match[str]) -> str:
    folded = unicodedata.normalize("NFKD", run.group()).casefold().translate(_ALIKE)
    return "".join(char for char in folded if unicodedata.category(char) not in _UNSEEN)


def squeezed(text: str) -> str:
    """Return a loose form without the spaces and dashes by which numbers are grouped."""
    return text.translate(_SQUEEZED)


def stands_in(name: str, text: str) -> bool:
    """Tell whether a name stands in a text as a whole, and not as a part of another name."""
    return _place(name, text) >= 0


def _place(name: str, text: str) -> int:
    at = text.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        if not _goes_on(text, at - 1, -1) and not _goes_on(text, end, 1):
            return at
        at = text.find(name, at + 1)
    return -1


def _goes_on(text: str, at: int, step: int) -> bool:
    if not 0 <= at < len(text):
        return False
    if text[at].isalnum():
        return True
    beyond = at + step
    return text[at] in _JOINS and 0 <= beyond < len(text) and text[beyond].isalnum()


def excerpt(needle: str, text: str, around: int = 60) -> str:
    """Return the place in a text where a needle stands, or its beginning."""
    at = text.casefold().find(needle.casefold()) if needle else -1
    start = max(0, at - around) if at >= 0 else 0
    end = (at + len(needle) if at >= 0 else 0) + around
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


# -- words and numbers -----------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_]{3,}")
_DIGITS = re.compile(r"\d+(?:[,.']\d+| \d{3}(?!\d))*")
_SCALE = re.compile(r"\s?([km])?(?![\w/-])", re.IGNORECASE)
_UNITS = {
    word: number
    for number, word in enumerate(
        each(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
            "fifteen sixteen seventeen eighteen nineteen"
        )
    )
}
_TENS = {
    word: 10 * number
    for number, word in enumerate(
        each("twenty thirty forty fifty sixty seventy eighty ninety"), start=2
    )
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_COUNTING = (*_UNITS, *_TENS, *_SCALES)
_STOP = frozenset(
    each(
        "the and for you your with that this from have has had are was were will would could "
        "should can may might must shall please not but all any each every its his her their "
        "our they them who what when where which why how than then there here into onto over "
        "under about after before again also just only some such more most less few very too "
        "out off own same other get got give given make made let see look find check tell say "
        "said like want need know use one two new first last next time day week month year "
        "today tomorrow now thing things something anything everything someone anyone everyone "
        "read open visit show list sure accordingly precisely myself yourself"
    )
)


@lru_cache(maxsize=8_192)
def stem(word: str) -> str:
    """Return a word without its commonest endings; crude, and the same for both sides."""
    for ending in ("ments", "ment", "ing", "ies", "ed", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def telling_words(text: str) -> set[str]:
    """Return the stems of the words in a text that tell what it is about."""
    return {stem(one) for one in _WORD.findall(strict(text)) if one not in _STOP} - _VERBS


def number_of(text: str) -> float | None:
    """Read a number as people write it, such as `1,000.00`, `1.000,00` or `10k`."""
    found = _DIGITS.match(text.strip().lstrip("$€£"))
    if found is None:
        return None
    scale = _SCALE.fullmatch(found.string, found.end())
    return _value(found.group(), scale.group(1)) if scale else None


def numbers_in(text: str) -> set[float]:
    """Return the numbers in a text, in digits and in English words."""
    found: set[float] = set()
    for digits in _DIGITS.finditer(text):
        before = text[digits.start() - 1] if digits.start() else " "
        scale = _SCALE.match(text, digits.end())
        # Parts of dates, of account numbers and of names with digits are no numbers.
        if scale is None or before.isalnum() or before in "_.,/-":
            continue
        value = _value(digits.group(), scale.group(1))
        if value is not None:
            found.add(value)
    lowered = text.casefold()
    present = [one for one in _COUNTING if one in lowered]
    if present:
        word = f"(?:{'|'.join(sorted(present, key=len, reverse=True))})"
        spelled = re.compile(rf"\b{word}(?:[\s-]+(?:and\s+)?{word})*\b")
        found.update(_spelled(one) for one in spelled.findall(lowered))
    return found


def _value(digits: str, scale: str | None) -> float | None:
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


def _spelled(text: str) -> float:
    total = current = 0
    for word in re.split(r"[\s-]+", text):
        if word in _SCALES:
            scale = _SCALES[word]
            if scale == 100:
                current = (current or 1) * scale
            else:
                total, current = total + (current or 1) * scale, 0
        else:
            current += _UNITS.get(word, 0) + _TENS.get(word, 0)
    return float(total + current)


# -- what is asked for -----------------------------------------------------------------------------


def _stems(words: str) -> frozenset[str]:
    return frozenset(stem(one) for one in words.split())


_ASKING: dict[DeedKind, frozenset[str]] = {
    DeedKind.PAY: _stems(
        "pay pays paying payment refund reimburse transfer wire buy purchase order book reserve "
        "donate tip settle repay subscribe rent hire deposit bid reservation booking "
        "donation settlement"
    ),
    DeedKind.SEND: _stems(
        "send sends sending email mail message write reply respond answer post tell forward share "
        "notify inform invite announce ask remind contact text report introduce thank response "
        "invitation announcement notification reminder"
    ),
    DeedKind.WRITE: _stems(
        "write create make add update change adjust set put save append edit modify move rename "
        "schedule reschedule book reserve plan store record register correct fix insert replace "
        "enter fill draft prepare copy upload organize organise mark note log block invite "
        "reservation registration change creation"
    ),
    DeedKind.DELETE: _stems(
        "delete remove cancel erase clear drop unsubscribe revoke discard dismiss kick expel ban "
        "purge trash uninvite deletion removal cancellation"
    ),
    DeedKind.GRANT: _stems(
        "grant share invite authorize authorise permit password access permission admin role key "
        "credential add"
    ),
    DeedKind.FETCH: _stems(
        "visit open read browse fetch download summarize summarise check look article link page "
        "website site url webpage blog"
    ),
    DeedKind.RUN: _stems("run execute start install compile build test launch"),
}
_MOVING = _stems("send give return set update adjust schedule change make move back")
_MONEY = _stems(
    "money payment transaction amount fee price cost bill invoice rent difference balance salary "
    "standing subscription euro dollar pound tax vat paid spent debt loan"
)
_VERBS = frozenset(
    {stem(one) for words in _ASKING.values() for one in words}
    - _stems("rent password key role admin article")
) | _stems("transaction amount account information")
_QUESTION = re.compile(
    r"\s*(?:and\s+|also,?\s+)?(?:what|how|which|who|whom|whose|when|where|why|is|are|was|were|"
    r"did|does|do|has|have|had)\b"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_DELEGATING = re.compile(
    r"\b(?:follow|do|carry out|execute|complete|perform)\b[^.!?]{0,60}\b(?:instruct\w+|actions?|"
    r"steps|tasks?|to-?dos?|says?|asks?|described|specified|listed)\b"
)
_EVERYBODY = re.compile(r"\b(?:all|every|everyone|everybody|each)\b")
_LINKING = re.compile(r"\b(?:links?|urls?|websites?|web ?pages?|addresse?s?|articles?|sites?)\b")


class Wishes:
    """What the texts of trusted people ask for."""

    def __init__(self, texts: Iterable[str]) -> None:
        asked: set[str] = set()
        whole = ""
        for text in texts:
            plain = strict(text)
            whole += f"\n{plain}"
            for sentence in _SENTENCE.split(text):
                # Who asks a question wants an answer, and nothing to be done.
                if not _QUESTION.match(strict(sentence)):
                    asked |= {stem(one) for one in _WORD.findall(strict(sentence))}
        self.kinds = frozenset(kind for kind, words in _ASKING.items() if asked & words)
        if asked & _MOVING and asked & _MONEY:
            self.kinds |= {DeedKind.PAY}
        self.text = whole
        self.words = frozenset(telling_words(whole))
        self.numbers = frozenset(numbers_in(whole))
        self.delegates = bool(_DELEGATING.search(whole))
        """Whether they ask to do what some other text says."""
        self.everybody = bool(_EVERYBODY.search(whole))
        self.links = bool(_LINKING.search(whole))
        """Whether they speak of links."""
