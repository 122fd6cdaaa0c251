"""What people ask to have kept, tell that lasts, and put right, found where a rule is exact.

The words of each language are in `keep.toml`. What the rules leave is a model's to read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from asterism.memory.words import word_set
from asterism.records import dataclass

MAX_SENTENCE = 400
"""Characters of a sentence. A longer sentence is not a fact."""
_MAX_CHARACTERS = 64_000
_SENTENCE = re.compile(
    # Not after "Dr." or in "e.g.", and after a number only before what can begin a sentence.
    r"(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\b[DMSHFN]r\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bNo\.)(?<!\bMs\.)"
    r"(?<!\bSra\.)(?<!\bMme\.)(?<!\bSig\.)(?<!\bDra\.)(?<!\bProf\.)(?<!\bca\.)(?<!\bbzw\.)"
    r"(?:(?<!\d\.)\s+|\s+(?=[^\Wa-z\d])"
    r"(?!(?:Jan|Feb|M[aä]r|Apr|Ma[iy]|Jun|Jul|Aug|Sep|O[ck]t|Nov|De[cz])[a-zä]*\b))"
    r"|(?<=[。！？؟।])|[\n\r\v\f\x00]+"
)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


_VALUE = r"[\w][\w'.:-]{0,30}(?: [\w][\w'.:-]{0,30}){0,3}"
_CORRECTIONS = (
    # The old value before the new one, then the other way round.
    re.compile(
        rf"\b(?:nicht|not|no|non|niet) (?P<old>{_VALUE}?),? (?:sondern|but|sino|ma|maar)"
        rf" (?P<new>{_VALUE})[.!]*$",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?P<new>{_VALUE}),? (?:and )?(?:not|no|pas|non|niet|не) (?P<old>{_VALUE}?)[.!]*$",
        re.IGNORECASE,
    ),
)
_MAX_KEPT = 5
_MAX_ASKED = 4_000
"""Characters of a message that is asked to be kept; longer ones are left to the agent."""


@dataclass(frozen=True, slots=True)
class _KeepRules:
    """The rules of `keep.toml`, made when first used."""

    request: re.Pattern[str]
    at_end: re.Pattern[str]
    lasting: re.Pattern[str]
    passing: re.Pattern[str]
    corrects: re.Pattern[str]
    has_changed: re.Pattern[str]
    """Found at once, perhaps within another word."""
    changed: re.Pattern[str]
    previous: re.Pattern[str]


_ASKS_WHETHER = re.compile(
    r"(?:\w+[,!]? )?(?:do|did|can|could|will|would)(?:n't)? (?:you|we) (?:still |even )?remember\b"
    r"(?! that\b)",
    re.IGNORECASE,
)
_UNSPACED = frozenset({"zh", "ja"})
_SIGH = r"(?:[aou]+[hgr]+|h?mm+|u[hm]+|ähm?|eh|ach|ay|uy)?[,.!… ]*"


@cache
def _keep_rules() -> _KeepRules:
    text = Path(__file__).with_name("keep.toml").read_text("utf-8")
    languages: dict[str, dict[str, list[str]]] = tomllib.loads(text)
    requests: list[str] = []
    lasting: list[str] = []
    passing: list[str] = []
    at_end: list[str] = []
    openings: list[str] = []
    corrects: list[str] = []
    changed: list[str] = []
    previous: list[str] = []
    for name, rules in languages.items():
        # Words end where a letter does not follow, in scripts that part them.
        end, space = ("", r"[,，:：\s]*") if name in _UNSPACED else (r"(?!\w)", r"[\s:,–-]+")
        polite = _one_of(rules["polite"], f"{end}[,:!]?\\s*") if rules["polite"] else ""
        start = f"(?:{polite})*" if polite else ""
        if rules["requests"]:
            that = f"(?:{_one_of(rules['that'], space)})*" if rules["that"] else ""
            but_not = f"(?!{_one_of(rules['but_not'], end)})" if rules["but_not"] else ""
            requests.append(f"{start}{_one_of(rules['requests'])}{space}{that}{but_not}")
        lasting.append(f"{start}{_one_of(rules['lasting'], end)}.+")
        passing += [f"(?<!\\w){word}{end}" if end else word for word in rules["passing"]]
        at_end += rules.get("at_end", [])
        previous.append(f"{start}{_one_of(rules['previous'])}")
        openings += [polite] if polite else []
        corrects.append(_one_of(rules["corrects"], end))
        changed += rules["changed"]
    return _KeepRules(
        re.compile(_one_of(requests), re.IGNORECASE),
        re.compile(
            rf"(.+?)(?:という?こと)?(?:を|と|って|、)?{_one_of(at_end)}"
            r"(?:ください|下さい|くれ|ね|よ)*[。!！.]?"
        ),
        re.compile(_one_of(lasting), re.IGNORECASE | re.DOTALL),
        re.compile(_one_of(passing), re.IGNORECASE),
        # One opening for all languages: this is asked of every message.
        re.compile(f"{_SIGH}{_one_of(openings)}*{_one_of(corrects)}", re.IGNORECASE),
        re.compile(_one_of(changed)),
        re.compile(rf"(?<![a-zà-ÿа-я]){_one_of(changed)}(?![a-zà-ÿа-я])"),
        re.compile(
            rf"{_one_of(previous)}(?P<more>,.{{3,80}})?[,\s]*(?:please|bitte|por favor|stp"
            rf"|svp)?[\s.!。！]*",
            re.IGNORECASE,
        ),
    )


def _one_of(parts: Sequence[str], then: str = "") -> str:
    return f"(?:{'|'.join(parts)}){then}"


def asked_to_keep(text: str, before: Sequence[str] = ()) -> list[str]:
    """Return what a message asks to be kept, in its own words: "remember that …" without that.

    Requests are known in eleven languages. Where none is found, there may be one all the same.

    Args:
        text: The message.
        before: What was said before it, and what was answered, for "remember that, please".
    """
    if len(text) > _MAX_ASKED or not may_ask_to_keep(text):
        return []
    rules = _keep_rules()
    parts = sentences(text)
    match = rules.previous.fullmatch(parts[-1].replace("’", "'")) if parts else None
    if match is not None:
        kept = _said_before(parts[:-1], before, match)
        return [kept] if kept else []
    found = [fact for part in parts if (fact := _before_request(part, rules)) != part]
    found = [fact for fact in found if len(fact) <= MAX_SENTENCE and not looks_secret(fact)]
    if found:
        return found[:_MAX_KEPT]
    items = _LIST_ITEM.split(text)
    for item in items:
        parts = sentences(item) if len(items) > 1 else parts
        for place, sentence in enumerate(parts):
            fact = _without_request(sentence, rules)
            if fact and ":" in sentence[: len(sentence) - len(fact)]:
                # What follows a colon goes on to the end of its paragraph.
                rest = [part for part in parts[place + 1 :] if not part.endswith(("?", "？"))]
                found.append(". ".join([fact, *rest]) if rest else fact)
                break
            if fact:
                found.append(fact)
    return found[:_MAX_KEPT]


_LIST_ITEM = re.compile(
    r"\n|(?:^|\s)\(?\d\)\s|,?\s+(?:and|und|et|y|e)\s+(?=(?:please |also )?(?:remember|memori[sz]e"
    r"|merk|retiens|recuerda|ricorda|lembra|remind me|erinnere mich|rappelle-moi|recu[eé]rdame"
    r"|ricordami|me lembr[ae]|lembra-me|herinner me)\b)",
    re.IGNORECASE,
)
"""What stands between the things that a message asks for."""


_IN_REQUESTS = re.compile(
    r"rem[em]|memor|mind|forg|not|save|keep|write|jot|referen|record|info|import|store|log|merk"
    r"|verg|denk|behalt|schr|speicher|später|protokoll|souv|rappel|reti?en|oubli|plus tard|mémoire"
    r"|tête|rec[ou]|acu[eé]rd|olvid|ap[uú]nt|an[oó]t|cuenta|guard|conste|ricord|tieni|dimentic"
    r"|segn|salva|lembr|esque|onthou|sla op|later|pamięt|zapom|zanot|запом|забуд|запиш"
    r"|know|aware|hold on|(?:this|that|it) down|next time|wissen|wei(?:ß|ss)t"
    r"|festhalt|halte? fest|sab|saiba|sepas|sach|sapp|regist|bewaar|weten|oren|记|記|覚|メモ|憶"
)
"""Every request of `keep.toml` has one of these in it, in lower case."""


def may_ask_to_keep(text: str) -> bool:
    """Tell whether a message may have a request; of most, this is known at once."""
    return _IN_REQUESTS.search(text.lower()) is not None


def _said_before(own: Sequence[str], before: Sequence[str], match: re.Match[str]) -> str:
    """Return what "remember that" means, in the words in which it was said.

    Args:
        own: What the message says before it.
        before: What was said before the message, and what was answered.
        match: The request, which may say more: "remember that, it matters".
    """
    told = [said.strip() for said in own if said[-1] not in "?？؟"]
    told = told[-1:] or [
        said.strip() for said in before if said.strip() and said.strip()[-1] not in "?？؟"
    ]
    kept = told[0] if told else ""
    if len(kept) > MAX_SENTENCE or looks_secret(kept):
        return ""
    more = (match["more"] or "").lstrip(", ").rstrip(".!")
    return f"{kept} ({more})" if kept and more else kept


def _before_request(sentence: str, rules: _KeepRules) -> str:
    """Return a sentence without a request at its end: "…, please remember that."."""
    for cut in _AT_END.finditer(sentence):
        rest = sentence[cut.end() :].replace("’", "'")
        if cut.start() >= _LEAST_FACT and rules.previous.fullmatch(rest) is not None:
            return sentence[: cut.start()]
    return sentence


_AT_END = re.compile(r"\s*[,;–—]\s*(?:(?:so|and|und|et|y|e)\s+)?|\s+-\s+")
"""What stands between a statement and a request about it."""
_INTRODUCTION = re.compile(
    r"(?:(?:[Hh]i|[Hh]ello|[Hh]ey)(?: there)?[,.]?\s+)?"
    r"(?P<told>(?:I am|I'm) [A-ZÀ-Þ][a-zà-ÿ][\w'-]*(?: and I .+|,? from .+|, .+|[.!]*)$)"
)
"""How somebody says in English who they are; names begin with a capital."""


def _without_request(sentence: str, rules: _KeepRules) -> str:
    """Return what a sentence asks to be kept; nothing if it asks for something else."""
    plain = sentence.replace("’", "'")
    if _ASKS_WHETHER.match(plain):
        return ""
    if (match := rules.request.match(plain)) is not None:
        fact = sentence[match.end() :]
    elif not plain.isascii() and (match := rules.at_end.fullmatch(plain)) is not None:
        fact = match[1]
    else:
        return ""
    fact = re.sub(r"[,;]?\s*(?:please|bitte|thanks|por favor)?\s*[?!.]*$", "", fact.strip())
    return fact if len(fact) >= _LEAST_FACT else ""


_LEAST_FACT = 3


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, code left out."""
    text = text[:_MAX_CHARACTERS]
    if "```" in text:
        text = _CODE.sub("\n", text)
    return [part for sentence in _SENTENCE.split(text) if sentence and (part := sentence.strip())]


_SECRET = (
    r"\b(?:passwor[dt]|passwd|passphrase|passcode|kennwort|mot de passe|contraseña|пароль|pin|puk"
    r"|cvv|cvc|api[ -]?keys?|secret|access key|private key|recovery (?:code|phrase)|seed phrase"
    r"|tokens?|credentials?|one-time code|otp)\b.{0,40}(?:\bis\b|\bare\b|\bist\b|[:=]|—|–|-\s)"
    r"|\b(?:sk|pk|rk)[-_][\w-]{12,}|\bgh[pousr]_\w{16,}|\bxox[abpr]-\S+|\bAKIA\w{12,}|\beyJ\w{10,}"
    r"|-----BEGIN|\b(?:\d{4}[ -]?){3}\d{4}\b"
)
_MIXED = re.compile(r"(?<![/\w.@])(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}")


@cache
def _secret() -> re.Pattern[str]:
    return re.compile(_SECRET, re.IGNORECASE)


def looks_secret(text: str) -> bool:
    """Tell whether a text seems to contain a password, a key or a card number."""
    return bool(_secret().search(text) or _MIXED.search(text))


def lasting_facts(text: str) -> list[str]:
    """Return the sentences in which a person says something lasting, by exact rules alone.

    "My name is …", "I live in …", "I am allergic to …" and the like. What they leave is a model's
    to read. What holds today only, questions, and what looks like a password are left out.
    """
    if len(text) > _MAX_ASKED:
        return []
    rules = _keep_rules()
    found: list[str] = []
    for sentence in sentences(text):
        plain = sentence.replace("’", "'")
        if len(sentence) > MAX_SENTENCE or sentence[-1] in "?？؟":
            continue
        if (
            rules.lasting.match(plain)
            and not rules.passing.search(plain)
            and not looks_secret(plain)
        ):
            found.append(_before_request(sentence, rules))
        elif (named := _INTRODUCTION.match(plain)) and not rules.passing.search(plain):
            found.append(sentence[named.start("told") :])
    return found[:_MAX_KEPT]


_MAX_CORRECTION = 160
"""Characters; a longer message tells something of its own."""


def is_correction(text: str) -> bool:
    """Tell whether a message seems to put right what was said before: "no, 41", "I meant Tom"."""
    plain = text.strip().replace("’", "'")
    if not plain or len(plain) > _MAX_CORRECTION or plain[-1] in "?？؟":
        return False
    rules = _keep_rules()
    return (
        rules.corrects.match(plain) is not None
        or correction_in(plain) is not None
        or _tells_of_change(plain.lower(), rules)
    )


def _tells_of_change(lower: str, rules: _KeepRules) -> bool:
    return rules.has_changed.search(lower) is not None and rules.changed.search(lower) is not None


def is_question(text: str) -> bool:
    """Tell whether a message asks something, with or without a question mark."""
    return _QUESTION.search(text) is not None


_QUESTION = re.compile(
    r"[?\uff1f\u061f]|^\W*(?:what|whats|which|who|whos|whose|when|where|why|how|do you|did|does|is"
    r"|was|are|tell me|remind me (?:what|when|where|who|how|which)|wie|wer|wo|wann|was|welche\w*"
    r"|wei(?:ss|ß)t|que|qué|qui[eé]n|cu[aá]ndo|d[oó]nde|cu[aá]l|c[oó]mo|a qu[eé]|qui|quand|o[uù]"
    r"|quel\w*|comment|chi|dove|quando|quale|come|a che|quem|onde|qual|como)\b"
    r"|何|いつ|どこ|誰|だれ|どの|どれ|いくら|いくつ|ですか|ますか|什么|哪|谁|几|多少|吗",
    re.IGNORECASE,
)


_DAY_NAMES = (
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch"
    r"|lunes|martes|mi[eé]rcoles|jueves|viernes|s[aá]bado|domingo|lundi|mardi|mercredi|jeudi"
    r"|vendredi|samedi|dimanche|luned[iì]|marted[iì]|mercoled[iì]|gioved[iì]|venerd[iì]|sabato"
    r"|domenica|(?:segunda|ter[cç]a|quarta|quinta|sexta)(?:-feira)?|tomorrow|today|morgen|heute"
    r"|[月火水木金土日]曜日?"
)
_MONTH_NAMES = (
    r"january|february|march|april|may|june|july|august|september|october|november|december"
    r"|januar|februar|m[aä]rz|mai|juni|juli|oktober|dezember|enero|febrero|marzo|abril|mayo|junio"
    r"|julio|agosto|septiembre|octubre|noviembre|diciembre|janvier|f[eé]vrier|mars|avril|juin"
    r"|juillet|ao[uû]t|septembre|octobre|novembre|d[eé]cembre"
)
_NUMBER_NAMES = (
    r"two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|zwei|drei|vier|f[uü]nf|sechs"
    r"|sieben"
    r"|acht|neun|zehn|elf|zw[oö]lf|dos|tres|cuatro|cinco|siete|ocho|nueve|diez|deux|trois|quatre"
    r"|cinq|sept|huit|neuf|dix"
)
_NAMES = re.compile(
    # Names stand within a sentence; at its beginning every word has a capital letter.
    r"(?<![.!?…] )(?<!^)(?<!\w)[A-ZÀ-Þ][a-zà-ÿ-]{1,30}(?: [A-ZÀ-Þ][a-zà-ÿ-]{1,30})*"
)
_VALUES = (
    re.compile(rf"\b(?:{_DAY_NAMES})\b", re.IGNORECASE),
    re.compile(rf"\b(?:{_MONTH_NAMES})\b", re.IGNORECASE),
    re.compile(r"(?<![\d:.])\d{1,2}(?:[:.h]\d{2}(?!\d)(?: ?[ap]m\b)?| ?[ap]m\b)", re.IGNORECASE),
    re.compile(r"(?<![A-Za-z\d.,])[A-Za-z]*\d(?:[A-Za-z\d]|[.,:/-](?=\d))*"),
    re.compile(rf"\b(?:{_NUMBER_NAMES})\b", re.IGNORECASE),
    _NAMES,
)
"""Kinds of values of which one may take the place of another."""
_NO_NAMES_OF_PEOPLE = frozenset(("I", "I'm", "I'll", "Ich", "Uhr", "OK"))
_CLOCK = re.compile(r"\d{1,2} ?(?P<half>[ap]m)", re.IGNORECASE)


def put_right(statement: str, correction: str) -> str | None:
    """Return a statement with the value that a correction names; None if it is not clear.

    "The choir meets on Wednesday" and "no, Thursday" make "The choir meets on Thursday". It is
    clear where the statement has one value of a kind and the correction one other, or where the
    same word stands beside both ("12 tiles", "it was 15 tiles").
    """
    swap = correction_in(correction)
    if swap is not None:
        right = _replaced(statement, swap[1], swap[0])
        if right != statement:
            return right
    for pattern in _VALUES:
        old = list(pattern.finditer(statement))
        there = {match[0].casefold() for match in old}
        new = {
            match[0].casefold(): match
            for match in pattern.finditer(correction)
            if match[0].casefold() not in there and match[0] not in _NO_NAMES_OF_PEOPLE
        }
        if not old or len(new) != 1:
            continue
        (match,) = new.values()
        if len(there) > 1:
            beside = [value for value in old if _neighbours(value) & _neighbours(match)]
            # "Bia's teacher is called Renata": a name that ends a statement is what it tells.
            at_end = (
                [old[-1]]
                if pattern is _NAMES and not statement[old[-1].end() :].strip(" .!")
                else []
            )
            old = beside or at_end
        if len({value[0].casefold() for value in old}) == 1 and _may_replace(match, old[0]):
            return _replaced(statement, old[0][0], _value_for(match[0], old[0][0]))
    return None


def _replaced(statement: str, old: str, new: str) -> str:
    # Scripts without spaces have letters right beside a value.
    bounds = r"(?<![A-Za-zÀ-ÿ\d])", r"(?![A-Za-zÀ-ÿ\d])"
    return re.sub(re.escape(old).join(bounds), lambda _: new, statement, flags=re.IGNORECASE)


def _neighbours(value: re.Match[str]) -> set[tuple[str, str]]:
    """Return the words around a value, such as "tiles" after "12 tiles"."""
    before = re.search(r"([^\W\d_]{2,})\s$", value.string[: value.start()])
    after = re.match(r"\s([^\W\d_]{2,})", value.string[value.end() :])
    places = (("before", before), ("after", after))
    return {(place, found[1].casefold()) for place, found in places if found is not None}


def _may_replace(new: re.Match[str], old: re.Match[str]) -> bool:
    """Tell whether two numbers can be of the same: "24 chairs" is not what "5 people" corrects."""
    if not new[0].isdigit() or not old[0].isdigit():
        return True
    counted = [
        {word for place, word in _neighbours(value) if place == "after"} - _NOT_COUNTED
        for value in (new, old)
    ]
    return not all(counted) or counted[0] == counted[1]


_NOT_COUNTED = word_set(
    "please instead not since now is was are were and or but because sorry then too of in on at"
    " to for from by it thanks bitte nicht statt ist sind war und oder aber seit jetzt uhr por"
    " favor no es son era pero desde ahora en de al s'il pas est sont mais depuis maintenant non"
    " ma dal ora e"
)
"""Words behind a number that are not what it counts."""


def _value_for(new: str, old: str) -> str:
    """Return a time of day with the half of the day of the one whose place it takes."""
    clock = _CLOCK.fullmatch(old)
    return new + clock["half"] if clock is not None and new.isdigit() else new


_NEGATION = re.compile(r"\b(?:not|nicht|no|non|niet|pas|не)\b", re.IGNORECASE)


_TO_YOU = {
    "i": "you",
    "me": "you",
    "my": "your",
    "mine": "yours",
    "myself": "yourself",
    "we": "you",
    "us": "you",
    "our": "your",
    "ours": "yours",
    "ourselves": "yourselves",
    "i'm": "you're",
    "i've": "you've",
    "i'd": "you'd",
    "i'll": "you'll",
    "we're": "you're",
    "we've": "you've",
    "we'd": "you'd",
    "we'll": "you'll",
}
_FIRST_PERSON = re.compile(
    r"(?P<i>\bI(?P<adverb> (?:also|now|still|always|usually|only|just))? (?P<be>am|was)\b)"
    r"|(?P<owner>\b(?:the|my) owner's\b)"
    r"|\b(?P<word>I'(?:m|ve|d|ll)|we'(?:re|ve|d|ll)|I|me|my(?:self)?|mine|we|us|our(?:s|selves)?)\b"
    r"(?!\.)",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(r"\byou(?:r\w*|'\w+)?\b|[\"“”„«»]", re.IGNORECASE)


def to_second_person(statement: str) -> str | None:
    """Return an English statement as it is said to whoever made it: "My car …" as "Your car …".

    None where nothing in it is about the speaker, or somebody is addressed or quoted in it.
    """
    plain = statement.replace("’", "'")
    if _SECOND_PERSON.search(plain):
        return None

    def turned(match: re.Match[str]) -> str:
        if match["i"]:
            word = f"you{match['adverb'] or ''} {'are' if match['be'].lower() == 'am' else 'were'}"
        elif match["owner"]:
            word = "your"
        else:
            word = _TO_YOU[match["word"].lower()]
        begins = not plain[: match.start()].strip() or plain[: match.start()].rstrip()[-1] in ".!?"
        return word[0].upper() + word[1:] if begins else word

    told = _FIRST_PERSON.sub(turned, plain)
    return told if told != plain else None


def correction_in(text: str) -> tuple[str, str] | None:
    """Return the new and the old value of a short correction, such as "Thursday, not Wednesday"."""
    sentence = text.strip().replace("’", "'")
    if not sentence or len(sentence) > MAX_SENTENCE or sentence[-1] in "?？؟":
        return None
    if not _NEGATION.search(sentence):
        return None
    for place, pattern in enumerate(_CORRECTIONS):
        if (match := pattern.search(sentence)) is not None:
            new, old = match["new"].split(), match["old"].split()
            # The new value has as many words as the old one; others stand around it.
            value = new[: len(old)] if place == 0 else new[-len(old) :]
            return " ".join(value).rstrip(".:"), " ".join(old).rstrip(".:")
    return None
