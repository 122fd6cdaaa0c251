"""What two texts say, claim by claim: whether one says what the other does, or excludes it."""

from __future__ import annotations

from dataclasses import replace

from asterism.memory import lexicon
from asterism.memory.claims import Claim, Reading
from asterism.memory.values import Token
from asterism.memory.words import singular, words

_OWNED = frozenset({"his", "her", "their", "my", "our", "your"})
_ASKS = {"in": "where", "at": "where", "for": "whom", "as": "as what", "from": "from where"}


def contradiction(ours: Reading, theirs: Reading) -> str:
    """Return in words why two texts cannot both hold; empty if they can."""
    for one in ours.claims:
        for other in theirs.claims:
            reason = _conflict(one, other) if one.subject == other.subject else ""
            if not reason and _swapped(one, other):
                reason = f"each says the reverse of the other: {one.show()}"
            if reason:
                return reason
    return ""


def covers(whole: Reading, part: Reading, text: str) -> bool:
    """Tell whether a text says all that another one does, its unread sentences word by word."""
    if not part.claims:
        return False
    if not all(any(_within(one, other) for other in whole.claims) for one in part.claims):
        return False
    return all(runs_through(plain_words(one), plain_words(text)) for one in part.loose)


def plain_words(text: str) -> list[str]:
    """Return the words of a text, folded, without fillers."""
    return [one for one in map(singular, words(text)) if one not in lexicon.FILLERS]


def runs_through(few: list[str], many: list[str]) -> bool:
    """Tell whether two words or more come in another list, one right after the other."""
    length = len(few)
    if length < 2 or few == many:
        return few == many
    return any(few == many[at : at + length] for at in range(len(many) - length + 1))


def named(claim: Claim) -> str:
    """Return what a claim is about, as it was written."""
    return claim.shown or "it"


def _within(one: Claim, other: Claim) -> bool:
    """Tell whether a claim says nothing that another does not."""
    return (
        one.subject == other.subject
        and one.verb == other.verb
        and (one.denied, one.modal, one.past) == (other.denied, other.modal, other.past)
        and one.content <= other.content
        and (bool(one.content) or not other.content or one.verb not in {"be", "have"})
        and _order(one) == _order(other, among=set(_order(one)))
    )


def _order(claim: Claim, among: set[str] | None = None) -> list[str]:
    """Return what is joined by words such as `than` and `to`, where the order counts."""
    if not any(one.key in {"than", "over"} for one in claim.rest):
        return []
    return [one.key for one in claim.rest if among is None or one.key in among]


def _conflict(one: Claim, other: Claim) -> str:
    """Return in words why two claims about one subject cannot both hold; empty if they can."""
    if one.verb != other.verb:
        return _ended(one, other) or _ended(other, one) or _diet(one, other)
    if one.modal != other.modal or one.past != other.past:
        return ""
    a, b = _flipped(one), _flipped(other)
    if a.denied != b.denied:
        no, yes = (a, b) if a.denied else (b, a)
        bare = not no.content and bool(yes.content)
        if no.content <= yes.content and not bare:
            return f"one says of {named(one)} what the other denies: {one.show()}, {other.show()}"
        return ""
    if one.denied or other.denied:
        return ""
    return _other_value(one, other)


def _flipped(claim: Claim) -> Claim:
    """Turn words such as `closed` into what they deny."""
    hits = [one for one in claim.rest if one.kind == "word" and one.key in lexicon.FLIPS]
    if not hits:
        return claim
    rest = tuple(
        Token("word", lexicon.FLIPS[one.key], one.shown) if one in hits else one
        for one in claim.rest
    )
    return replace(claim, rest=rest, denied=claim.denied ^ (len(hits) % 2 == 1))


def _ended(one: Claim, other: Claim) -> str:
    """Find "left Acme" against "works for Acme", "is retired" against "works"."""
    if other.past or other.denied or one.denied or one.modal or other.modal:
        return ""
    retired = one.verb == "be" and {"retired", "unemployed"} & one.words and other.verb == "work"
    lost = one.names or one.words - _OWNED
    over = other.verb in lexicon.ENDS.get(one.verb, ()) and lost and lost <= other.content
    if not retired and not over:
        return ""
    said = f"{one.verb} {one.show()}", f"{other.verb} {other.show()}"
    return f"after the one the other no longer holds of {named(one)}: {said[0]}, {said[1]}"


def _diet(one: Claim, other: Claim) -> str:
    for a, b in ((one, other), (other, one)):
        meatless = {"vegan", "vegetarian"} & a.words
        eats = b.verb == "eat" and "meat" in b.words
        if a.verb == "be" and meatless and eats and a.denied == b.denied:
            return f"both say what {named(a)} eats: {a.show()}, {b.show()}"
    return ""


def _other_value(one: Claim, other: Claim) -> str:
    """Find what can have one value at a time and has two."""
    if not one.subject or (one.past and one.verb not in {"be", "bear"}):
        return ""
    by_group = _groups(one, other)
    if by_group:
        return by_group
    if one.verb == "be" and set(one.subject) & lexicon.SINGLE and not one.several:
        return _other_single(one, other)
    return _typed(one, other) or _at_one_place(one, other) or _being(one, other)


def _other_single(one: Claim, other: Claim) -> str:
    a, b = ({**claim.values, "name": claim.names, "word": claim.words} for claim in (one, other))
    if not set(one.subject) & lexicon.WORDED:
        del a["word"]
    for kind in a.keys() & b.keys():
        if not _contained(a[kind], b[kind]):
            return f"both say what {named(one)} is: {other.show()}, {one.show()}"
    return ""


def _contained(a: frozenset[str], b: frozenset[str]) -> bool:
    return a <= b or b <= a


def _groups(one: Claim, other: Claim) -> str:
    if one.verb != "be":
        return ""
    a, b = ({lexicon.GROUPS[w]: w for w in c.words if w in lexicon.GROUPS} for c in (one, other))
    for group in a.keys() & b.keys():
        if a[group] != b[group]:
            return f"both say what {named(one)} is: {b[group]}, {a[group]}"
    return ""


def _typed(one: Claim, other: Claim) -> str:
    """Compare numbers, dates, times and the like, where all else agrees."""
    a, b = one.values, other.values
    shared = a.keys() & b.keys()
    different = [kind for kind in shared if not _contained(a[kind], b[kind])]
    if len(different) != 1 or not _contained(one.words, other.words):
        return ""
    kind = different[0]
    if one.names and other.names and not _contained(one.names, other.names):
        return ""
    if one.verb not in lexicon.MEASURED and kind == "number":
        return ""
    if one.verb in lexicon.HABITS and not (kind == "number" or kind.startswith("measure")):
        return ""
    if one.verb == "have" and one.words != other.words:
        return ""
    if kind in lexicon.TIMES:
        said = f"{_shown(other, kind)}, {_shown(one, kind)}"
        return f"both say when {named(one)} {_third(one.verb)}: {said}"
    return f"both say how much {named(one)} {_third(one.verb)}: {other.show()}, {one.show()}"


def _shown(claim: Claim, kind: str) -> str:
    return " ".join(one.shown for one in claim.rest if one.kind == kind)


def _third(verb: str) -> str:
    irregular = {"be": "is", "have": "has", "bear": "was born", "do": "does", "go": "goes"}
    return irregular.get(verb, verb + "s")


def _at_one_place(one: Claim, other: Claim) -> str:
    """Compare places and names after verbs that hold of one at a time."""
    for link in lexicon.ONE_PLACE.get(one.verb, ()):
        a, b = one.after((link,)), other.after((link,))
        if a and b and _exclude(a, b):
            said = f"{_ASKS.get(link, link)} {named(one)} {_third(one.verb)}"
            said += " for" if link == "for" else ""
            return f"both say {said}: {_join(b)}, {_join(a)}"
    return ""


def _being(one: Claim, other: Claim) -> str:
    """Compare where, who or by whom something is."""
    if one.verb != "be" or one.past or not one.rest or not other.rest:
        return ""
    first, second = one.rest[0], other.rest[0]
    a, b = one.after(("by",)), other.after(("by",))
    if a and b and first.key == second.key and first.key in lexicon.PASSIVES:
        said = f"by whom {named(one)} is {first.shown}: {_join(b)}, {_join(a)}"
        return f"both say {said}" if _exclude(a, b) else ""
    said = f"{other.show()}, {one.show()}"
    done = first.key.endswith(("ed", "en")) and first.key not in lexicon.EVERYWHERE
    if done and first.key == second.key and len(one.rest) > 1 and len(other.rest) > 1:
        link = one.rest[1].key
        a, b = one.after((link,)), other.after((link,))
        found = link in {"in", "at", "on"} and link == other.rest[1].key and a and b
        return f"both say where {named(one)} is: {said}" if found and _exclude(a, b) else ""
    if first.key in lexicon.PLACES and second.key in lexicon.PLACES:
        a, b = one.after((first.key,)), other.after((second.key,))
        plain = all(
            each and each[0].kind in {"word", "name"} and each[0].key not in lexicon.NO_PLACES
            for each in (a, b)
        )
        # "I am on the hunt": of those who speak, this is seldom a place.
        speaks = one.subject in {("i",), ("we",), ("you",)}
        found = plain and not speaks and _exclude(a, b)
        return f"both say where {named(one)} is: {said}" if found else ""
    all_names = all(token.kind == "name" for token in (*one.rest, *other.rest))
    role = not one.several and len(one.subject) > 1 and not set(one.subject) & lexicon.MANY
    if all_names and role and not _contained(one.names, other.names):
        return f"both say who {named(one)} is: {said}"
    return ""


def _exclude(a: tuple[Token, ...], b: tuple[Token, ...]) -> bool:
    """Tell whether two places or names are different ones of the same kind."""
    if a[0].kind != b[0].kind:
        return False
    one, other = (frozenset(token.key for token in each) for each in (a, b))
    wide = bool(one & lexicon.WIDE), bool(other & lexicon.WIDE)
    return not one & other and wide[0] == wide[1]


def _join(found: tuple[Token, ...]) -> str:
    return " ".join(one.shown for one in found)


def _swapped(one: Claim, other: Claim) -> bool:
    """Find "A is taller than B" against "B is taller than A", "prefers A to B" against "B to A"."""
    if one.verb != other.verb or one.denied or other.denied:
        return False
    if one.verb == "prefer" and one.subject == other.subject:
        a, b = ([t.key for t in c.rest if t.key not in {"to", "over"}] for c in (one, other))
        joined = any(t.key in {"to", "over"} for t in one.rest)
        return joined and len(a) > 1 and a != b and a == b[::-1]
    mine, yours = one.after(("than",)), other.after(("than",))
    return (
        bool(mine and yours)
        and one.rest[0].key == other.rest[0].key
        and tuple(sorted(t.key for t in mine)) == other.subject
        and tuple(sorted(t.key for t in yours)) == one.subject
        and one.subject != other.subject
    )
