"""Questions in a person's message that have one exact answer: sums, conversions, days and times.

What is read is read exactly, in seven languages as far as a rule is exact in them, and worked out
by the calculator and the calendar; everything else is left to the model.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from functools import lru_cache

from asterism.errors import ToolError
from asterism.records import dataclass
from asterism.times import to_datetime, zone_named
from asterism.tools.calculator.days import (
    asks_for_a_day,
    day_facts,
    day_in_words,
    place_of_time,
    time_facts,
)
from asterism.tools.calculator.parser import calculate
from asterism.tools.calculator.quantities import (
    Quantity,
    Unit,
    Value,
    measured,
    number,
    value_text,
)
from asterism.tools.calculator.quantities import unit_named as calculator_unit

MAX_FACTS = 4
_MAX_MESSAGE = 1_000
"""Characters; a longer message is a text to work on, not a sum."""


@dataclass(frozen=True, slots=True)
class Question:
    """A message as the rules below read it."""

    text: str
    """In lower case, without accents that vary, numbers as the calculator reads them."""
    language: str
    now: datetime
    """Where the owner is."""
    base: str = ""
    """The number that "that" stands for: the one that was worked out or answered before."""


def facts_about(
    message: str, previous: tuple[str, ...], now: int, zone: str, *, tell_now: bool = True
) -> list[str]:
    """Return what can be worked out exactly for a message, a short sentence each; mostly nothing.

    Args:
        message: What a person says.
        previous: What was said last before it, and what was answered.
        now: The time, in milliseconds.
        zone: The name of the person's time zone.
        tell_now: Whether "What time is it?" is answered, which many models see for themselves.
    """
    if len(message) > _MAX_MESSAGE or not _asks(message):
        return []
    question = _question(message, previous, to_datetime(now, zone_named(zone)))
    number = _DIGIT.search(question.text)
    found: list[str] = []
    # Each of the rules works with a number that is told, now or before.
    for rule in _RULES if number is not None or question.base else ():
        found += (fact for fact in rule(question) if fact not in found)
    converted = [] if asks_for_a_day(question.text) else list(_conversions(question))
    found += converted
    if converted:
        return found[:MAX_FACTS]
    timed = [
        *time_facts(question.text, question.language, question.now, tell_now=tell_now),
        *day_facts(question.text, question.language, question.now),
    ]
    # In the order of the questions: a small model answers the first and the last of them.
    if number is not None and place_of_time(question.text) < number.start():
        found, timed = timed, found
    return [*found, *timed][:MAX_FACTS]


_ABOUT_TIME = re.compile(
    r"\b(?:now|today|tonight|tomorrow|yesterday|(?:this|next|last) (?:week\w*|month|year|morning"
    r"|evening|spring|summer|autumn|winter|{days})|weekend|what (?:time is|date|day|year|month)"
    r"|old|age|born|ago|since|until|till|still|open|close[sd]?|late|early|jetzt|heute|morgen"
    r"|gestern|(?:diese|nachste|letzte)\w* (?:woche|monat|jahr)|wochenende|alt|geboren|seit|bis"
    r"|noch"
    r"|ahora|hoy|manana|ayer|desde|hasta|maintenant|aujourd'hui|demain|hier|depuis|jusqu\w*"
    r"|adesso|oggi|domani|ieri|agora|hoje|amanha|ontem)\b"
    r"|今何|今日|明日|昨日|何時|何曜日|何歳|现在|今天|明天|昨天|几点|几号|几岁".replace(
        "{days}", "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    )
)
"""What depends on the present. A small model mixes the time into any answer if it is told it."""


def is_about_time(message: str) -> bool:
    """Tell whether whoever answers a message may need to know what time it is."""
    return _ABOUT_TIME.search(_without_accents(message)) is not None


def time_now(now: int, zone: str) -> str:
    """Return what time it is, in a sentence."""
    here = to_datetime(now, zone_named(zone))
    return f"Now it is {here:%H:%M}, {day_in_words(here.date())}"


def _question(message: str, previous: tuple[str, ...], here: datetime) -> Question:
    language = language_of(message)
    text = _normalized(message, language)
    base = ""
    if previous and (_REFERENCE.search(text) or _LEADING_OPERATOR.match(text)):
        base = _number_before(previous, here)
    return Question(text, language, here, base)


def _number_before(previous: tuple[str, ...], here: datetime) -> str:
    """Return the one number that the latest exchange came to."""
    before = _question(previous[0], (), here) if _asks(previous[0]) else None
    results = [value for _, value in _calculated(before)] if before is not None else []
    if not results:
        answer = _normalized(previous[-1], language_of(previous[-1]))
        results = re.findall(_NUMBER, answer)
    return results[0] if len(set(results)) == 1 else ""


# -- asking ----------------------------------------------------------------------------------------

_ASKING = re.compile(
    r"[?\uff1f]|\d ?\w+ (?:to|in|into) \w+\s*$|\b(?:what|whats|how|calculate|compute|work out"
    r"|convert|solve|multiply|divide|split"
    r"|subtract|add|which|when|was|wie|wieviel|welche[rsn]?|wann|rechne|berechne|teile|addiere"
    r"|cuant[oa]s?|calcula|cual|que|combien|calcule|quel(?:le)?|quant[oaie]|calcola|qual|quais"
    r"|hoeveel|suma\w*|somma\w*|soma|some|additionne|addiere)\b|何|いくつ|いくら|計算|多少|几|計算|计算|等于|は\s*$"
)
"""In lower case, without accents."""
_ONLY_A_SUM = re.compile(r"[\s\d.,+\-*/x×÷^()%=√]+\Z")


def _asks(message: str) -> bool:
    plain = _without_accents(message)
    return _ASKING.search(plain) is not None or _ONLY_A_SUM.match(plain) is not None


_FUNCTION_WORDS = {
    "en": "what whats is the how much many of and to my i you does are that for it if do on or "
    "at with have has was were this me your can will not no so did who when where why "
    "which says said but they there please remind remember",
    "de": "was ist wie viel viele von und der die das ich mein mir bis ein eine kostet sind "
    "wann welcher welches tag tage noch heute mal durch macht den wieviel haben wir datum "
    "um zwei mich dich du hat meine morgen erinnere an nach es nicht heisst welche "
    "welchem wer wo auf zu",
    "es": "que cuanto cuantos cuantas es el la los de y por para mi dias hoy cual son hasta un "
    "cuesta en del al como se esta recuerdame manana he ha con sumame suma porfa dime una las lo "
    "donde cuando quien me te su sus mis yo no si pero le nos fue era",
    "fr": "quel quelle combien est le la les de et pour mon ma jours fait font dans un une du "
    "des est-il sera jusqu je tu nous suis mes rappelle moi demain il elle on se ou deja ce cette "
    "ne pas sur avec au aux vous son sa ses en y a-t-il ai as ont etait quand qui quoi comment",
    "it": "quanto quanti e il la di per mio giorni oggi che quale sono fa fanno un una al del "
    "alle ore mancano mi si chiama come domani ricordami non con ho ha dove quando chi cosa era "
    "nel della dei le lo questo sul sulla",
    "nl": "wat is de het een van en hoe mijn ik heb hoeveel wanneer waar je jij dat niet voor met "
    "zijn naar welke wie dag nog kun kan mij graag morgen vandaag om",
    "pt": "quanto quantos e o de para meu minha dias hoje qual sao que um uma ate horas como eu "
    "voce amanha nao esta onde quando quem da do em na no se me lhe foi era os as com por",
}
_WORDS_OF_LANGUAGES = {
    language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()
}


def language_of(text: str, least: int = 1) -> str:
    """Return the language whose most frequent words a text has most of; English if there are fewer.

    Args:
        text: What a person has written.
        least: How many words of another language it takes.
    """
    if re.search(r"[\u3040-\u30ff]", text):
        return "ja"
    if re.search(r"[\u4e00-\u9fff]", text):
        return "zh"
    words = set(re.findall(r"[a-z][a-z-]*", _without_accents(text)))
    counts = {language: len(words & known) for language, known in _WORDS_OF_LANGUAGES.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] >= least and counts[best] > counts["en"] else "en"


def _without_accents(text: str) -> str:
    if text.isascii():
        return text.lower()
    spelled = unicodedata.normalize("NFKD", text.lower().replace("ß", "ss").replace("\u2019", "'"))
    plain = "".join(
        char
        for char in spelled
        # The marks of Japanese syllables are no accents.
        if not unicodedata.combining(char) or char in "\u3099\u309a"
    )
    return unicodedata.normalize("NFC", plain)


# -- numbers ---------------------------------------------------------------------------------------

_NUMBER = r"(?<![\w.,])\d+(?:\.\d+)?(?![\w])"
_DIGIT = re.compile(r"\d")
_WRITTEN_NUMBER = re.compile(r"(?<![\w.,:/-])\d+(?:[.,']\d+)*(?![\w:])")
_PLACES_WANTED = re.compile(
    r"\d (?:decimals?|decimal places|digits?|nachkommastellen?|decimales|decimali|casas)\b"
)
_CURRENCY = re.compile(
    r"[$€£¥]|(?<=\d) ?(?:euros?|eur|dollars?|dolares|usd|chf|franken|gbp|円|元)(?![a-z])"
)
_OPERATORS = {
    "*": "times|multiplied by|keer|maal|mal|multipliziert mit|multiplicado por|por|fois"
    "|multiplie par|moltiplicato per|per|volte|vezes|[x×✕·∙]|かける|掛ける|乗以|乘以|乘",
    "+": "plus|added to|mas|mais|piu|たす|足す|加上|加",
    "-": "minus|less|weniger|menos|moins|meno|ひく|引く|减去|减|[−–]",
    "/": "divided by|gedeeld door|over|geteilt durch|durch|dividido entre|dividido por|entre"
    "|divise par|sur|diviso per|diviso|わる|割る|除以|÷",
    "^": r"to the power of|hoch|elevado a la|elevado a|puissance|alla|\*\*",
    "^2": "squared|al cuadrado|au carre|al quadrato|ao quadrado|zum quadrat|の[二2]乗|的平方",
    "^3": "cubed|al cubo|au cube|ao cubo|の[三3]乗|的立方",
    "%": "percent|per cent|procent|prozent|por ciento|pour cent|per cento"
    "|percento|por cento|パーセント|％",
}
_ROOT = (
    r"(?:the )?square root of|sqrt(?: of)?|(?:quadrat)?wurzel (?:aus|von)|raiz cuadrada de"
    r"|racine carree de|radice quadrata di|raiz quadrada de|√"
)
_OF = r"of|van|von|vom|de|du|des|del|della|di|do|da"


def _normalized(message: str, language: str) -> str:
    """Return a message with its numbers, and the words between numbers, as the calculator's."""
    text = _without_accents(unicodedata.normalize("NFKC", message))
    if _DIGIT.search(text) is not None:
        text = re.sub(r"(?<=\d)(?=[\u3040-\u9fff])|(?<=[\u3040-\u9fff])(?=\d)", " ", text)
        text = re.sub(r"(?:^|(?<=\s))\(?\d\) ", " ; ", text)  # 1) of a list
    text = _number_words(" ".join(text.split()), language)
    text = _PLACES_WANTED.sub(" ", text)
    text = re.sub(r"\b(?:anderthalb|eineinhalb|anderhalf)\b", "1.5", text)
    if _DIGIT.search(text) is None:
        return _CURRENCY.sub(" ", text).strip()
    text = re.sub(
        r"(?<![\w.,])(\d+) ([^\W\d_]+) (?:e mezz[oa]|y medi[oa]|et demie?|e mei[oa]|and a half)\b",
        r"\1.5 \2",
        text,
    )
    continental = language in ("de", "es", "fr", "it", "nl", "pt")
    text = _WRITTEN_NUMBER.sub(
        lambda found: read_number(found[0], continental=continental) or found[0], text
    )
    text = re.sub(r"(\d) (hundred|thousand|million)\b", _scaled, text)
    return _CURRENCY.sub(" ", text).strip()


def read_number(text: str, *, continental: bool) -> str | None:
    """Return a number as it is written in English without groups; None if it is not clear."""
    text = text.replace("'", "")
    if not re.search(r"[.,]", text):
        return text
    if "." in text and "," in text:
        decimal = max(".,", key=text.rfind)
        whole, _, places = text.rpartition(decimal)
        group = "," if decimal == "." else "."
        grouped = re.fullmatch(rf"\d{{1,3}}(?:\{group}\d{{3}})+", whole)
        return f"{whole.replace(group, '')}.{places}" if grouped else None
    sign = "." if "." in text else ","
    groups = text.split(sign)
    grouped = len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    if len(groups) > 2:
        return "".join(groups) if grouped else None
    if grouped and (sign == ",") is not continental:
        return "".join(groups)
    return ".".join(groups)


def _scaled(found: re.Match[str]) -> str:
    return found[1] + {"hundred": "00", "thousand": "000", "million": "000000"}[found[2]]


_UNITS_OF_WORDS = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen",
    "de": "null eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf dreizehn vierzehn "
    "funfzehn sechzehn siebzehn achtzehn neunzehn",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
    "quince dieciseis diecisiete dieciocho diecinueve",
    "fr": "zero _ deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze "
    "seize dix-sept dix-huit dix-neuf",
    "it": "zero _ due tre quattro cinque sei sette otto nove dieci undici dodici tredici "
    "quattordici quindici sedici diciassette diciotto diciannove",
    "nl": "nul _ twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien "
    "vijftien zestien zeventien achttien negentien",
    "pt": "zero _ dois tres quatro cinco seis sete oito nove dez onze doze treze catorze quinze "
    "dezesseis dezessete dezoito dezenove",
}
_TENS_OF_WORDS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreissig vierzig funfzig sechzig siebzig achtzig neunzig",
    "es": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    "fr": "vingt trente quarante cinquante soixante",
    "it": "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    "nl": "twintig dertig veertig vijftig zestig zeventig tachtig negentig",
    "pt": "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
}
_JOINED = {
    "en": "{1}[- ]{0}",
    "es": "{1} y {0}",
    "pt": "{1} e {0}",
    "fr": "{1}-{0}",
    "it": "{1}{0}",
    "nl": "{0}en{1}",
}


@lru_cache(maxsize=8)
def _words_of_numbers(language: str) -> tuple[re.Pattern[str], dict[str, int]] | None:
    if language not in _UNITS_OF_WORDS:
        return None
    units = _UNITS_OF_WORDS[language].split()
    words = {word: value for value, word in enumerate(units) if word != "_"}
    for place, ten in enumerate(_TENS_OF_WORDS[language].split(), 2):
        words[ten] = place * 10
        for value, unit in enumerate(units[1:10], 1):
            one = "ein" if language == "de" and value == 1 else unit
            joined = "{0}und{1}" if language == "de" else _JOINED[language]
            for form in (joined.format(one, ten),):
                for spelled in (form.replace("[- ]", "-"), form.replace("[- ]", " ")):
                    words[spelled] = place * 10 + value
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])"), words


def _number_words(text: str, language: str) -> str:
    if (known := _words_of_numbers(language)) is None:
        return text
    pattern, words = known
    counted = pattern.sub(lambda found: str(words[found[0]]), text)
    return re.sub(r"\bcada 1\b", "cada uno", counted)  # "each one" is not a number


# -- sums ------------------------------------------------------------------------------------------

_REFERENCE = re.compile(
    r"\b(?:that|it|this|the result|das|davon|dem ergebnis|eso|el resultado|ca|cela|le resultat"
    r"|quello|il risultato|isso|o resultado)\b|それ|その|那|这个"
)
_LEADING_OPERATOR = re.compile(
    r"(?:and |und |y |et |e )?(?:now |then |jetzt |ahora |maintenant |ora |agora )?"
    r"(?P<operator>times|plus|minus|divided by|mal|geteilt durch|mas|menos|fois|moins|piu|meno|mais"
    r"|vezes|[+*/×÷-])\s*\d"
)
_ADD = r"(?:add|addiere|suma|additionne|ajoute|somma|aggiungi|soma|some)"
_MULTIPLY = r"(?:multiply|multipliziere|multiplica|multiplie|moltiplica|multiplique)"
_DIVIDE = r"(?:divide|split|share|teile|reparte|divise|partage|dividi|dividir|divida)"
_INTO = r"(?:by|between|among|into|durch|zwischen|entre|por|par|per|tra|fra|em)"
_VERBS: tuple[tuple[str, str], ...] = (
    (r"(?:subtract|take) {a} (?:from|off) {b}", "{b} - {a}"),
    (r"(?:zieh|ziehe|subtrahiere) {a} von {b}", "{b} - {a}"),
    (r"(?:resta|restale|soustrais|retire|enleve|subtrai|subtraia) {a} (?:de|a) {b}", "{b} - {a}"),
    (r"(?:sottrai|togli) {a} (?:da|a) {b}", "{b} - {a}"),
    (rf"{_ADD} {{a}} (?:to|and|und|zu|y|a|et|e) {{b}}", "{b} + {a}"),
    (rf"{_MULTIPLY} {{a}} (?:by|with|mit|por|par|per) {{b}}", "{a} * {b}"),
    (rf"{_DIVIDE}\D{{{{0,30}}}}?{{a}}\D{{{{0,12}}}}? {_INTO} {{b}}", "{a} / {b}"),
    (r"(?:half of|die halfte von|la mitad de|la moitie de|la meta di|metade de) {a}", "{a} / 2"),
    (r"(?:twice|double|das doppelte von|el doble de|le double de|il doppio di|o dobro de) {a}",
     "2 * {a}"),
)  # fmt: skip
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>\d+(?:\.\d+)?)(?P<unit> ?(?:km|cm|mm|kg|ml|min)\b)?|(?P<root>sqrt)"
    rf"|(?P<of>\b(?:{_OF})\b)|(?P<sign>\^[23]?|[-+*/%()])|(?P<other>[^\W\d_]+|\S))"
)


def _sums(question: Question) -> Iterator[str]:
    for expression, result in _calculated(question):
        yield f"{expression} = {result}"


def _calculated(question: Question) -> Iterator[tuple[str, str]]:
    """Return the expressions of a question with their results."""
    text = question.text
    if question.base:
        text = _REFERENCE.sub(question.base, text)
        if (leading := _LEADING_OPERATOR.match(text)) is not None:
            text = f"{question.base} {text[leading.start('operator') :]}"
    if re.search(r"\d", text) is None:
        return
    seen: set[str] = set()
    for expression in (*_verb_sums(text), *_infix_sums(text)):
        result = _calculate(expression)
        if result is not None and expression not in seen:
            seen.add(expression)
            yield expression, result


def _calculate(expression: str) -> str | None:
    try:
        return _result_text(calculate(expression, 0))
    except (ToolError, ArithmeticError, ValueError):
        return None


def _result_text(value: Value) -> str:
    """Return a result with all its digits, or with two places where they are many or never end."""
    text = value_text(value)
    digits = re.fullmatch(r"(?:\S+ ?(?:\S+ )?\(about )?(?:about )?(-?\d+\.\d{5,})(.*?)\)?", text)
    if digits is None:
        return text
    unit = digits[2].rstrip(")")
    return f"{float(digits[1]):.6f}".rstrip("0") + f"{unit} (rounded {float(digits[1]):.2f}{unit})"


def _verb_sums(text: str) -> Iterator[str]:
    operand = r"(?P<{}>\d+(?:\.\d+)?)(?![\d.])"
    for pattern, expression in _VERBS:
        wanted = rf"\b{pattern.format(a=operand.format('a'), b=operand.format('b'))}"
        for found in re.finditer(wanted, text):
            yield expression.format(**found.groupdict())


def _infix_sums(text: str) -> Iterator[str]:
    """Return the longest runs of numbers with operators between them."""
    run: list[str] = []
    for token in _TOKEN.finditer(_with_operators(text)):
        if token["other"] is not None or (token["of"] is not None and run[-1:] != ["%"]):
            yield from _expression(run)
            run = []
            continue
        if token["number"] is not None and run and (run[-1][0].isdigit() or run[-1] == ")"):
            yield from _expression(run)  # two numbers side by side
            run = []
        run.append("of" if token["of"] is not None else token[0].strip())
    yield from _expression(run)


def _expression(run: list[str]) -> Iterator[str]:
    while run and run[-1] in ("+", "-", "*", "/", "^", "(", "of", "sqrt"):
        run = run[:-1]
    while run and run[0] in ("+", "*", "/", "^", ")", "%", "of", "-", "^2", "^3"):
        run = run[1:]
    numbers = sum(token[0].isdigit() for token in run)
    signs = [token for token in run if token in ("+", "-", "*", "/", "^", "of")]
    if numbers and (len(signs) == numbers - 1 > 0 or run[0] == "sqrt" or run[-1][0] == "^"):
        joined = " ".join(run)
        for ugly, tidy in (("( ", "("), (" )", ")"), (" %", "%"), (" ^", "^"), ("^ ", "^")):
            joined = joined.replace(ugly, tidy)
        yield re.sub(r"\bsqrt (\d+(?:\.\d+)?)", r"sqrt(\1)", joined).replace("sqrt (", "sqrt(")


def _with_operators(text: str) -> str:
    """Return a text with signs in place of the words between and after numbers."""
    text = re.sub(rf"(\d+)/(\d+) (?:{_OF}) (?=\d)", r"\1 / \2 * ", text)
    # A range, a date or a telephone number: a sum has spaces there, or is all that is said.
    if not _ONLY_A_SUM.match(re.sub(r"^(?:what is|what's|whats|was ist|was sind) ", "", text)):
        text = re.sub(r"(?<=\d)[-/](?=\d)", " _ ", text)
    text = re.sub(rf"(?:{_ROOT}) ?(?=[\d(])", "sqrt ", text)
    text = re.sub(r"(\d+(?:\.\d+)?) ?[のの的]平方根", r"sqrt \1", text)
    text = re.sub(
        r"(\d+(?:\.\d+)?) ?[の的] ?(\d+(?:\.\d+)?) ?(?:%|パーセント)", r"\2 % of \1", text
    )
    for sign, words in _OPERATORS.items():
        edge = r"(?![a-z])"
        after = r"" if sign in ("%", "^2", "^3") else r"(?= ?[\d(√]| ?sqrt)"
        text = re.sub(rf"(?<=[\d)%]) ?(?:{words}){edge}{after}", f" {sign} ", text)
    return text


# -- percentages and rates -------------------------------------------------------------------------

_PERCENTAGE = re.compile(
    r"(\d+(?:\.\d+)?) ?(?:%|percent\b|per cent\b|prozent\w*|por ?ciento|pour ?cent|per ?cento"
    r"|por ?cento|パーセント)"
)
_TIMES = re.compile(r"\b\d{1,2}[:h]\d{2}\b|\b\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b")
_AMOUNT_ASKED = re.compile(
    r"\b(?:how (?:much|many)|what|whats|was|wie ?viele?|cuant\w+|que|cual|combien|quel(?:le)?"
    r"|quant\w+|qual|che|calcul\w*|berechne|rechne|work out|price|cost|total|left|pay)\b"
    r"|\A\D{0,15}\d+(?:\.\d+)? ?%[^,?]{0,40}\?\s*\Z|いくら|いくつ|何|多少|计算"
)
_WHAT_PERCENT = re.compile(
    r"(?:what|how many|wie ?viele?|que|cuanto|quel|combien|che|quale|qual|quantos?)\b[^\d]{0,12}"
    r"(?:percent|per cent|%|prozent|porcentaje|por ciento|pourcentage|pour cent|percentuale"
    r"|per cento|porcentagem|por cento)|何(?:%|パーセント)|百分之几"
)


_REDUCED = re.compile(
    r"\b(?:off|discount\w*|reduced|reduction|sale|cheaper|less|rabatt\w*|reduziert\w*|nachlass"
    r"|skonto|gunstiger|descuento\w*|rebaj\w+|remises?|reductions?|soldes?|scont\w+|ribass\w+"
    r"|descontos?|korting)\b|引き|割引|オフ|折"
)
_RAISED = re.compile(
    r"\b(?:tip|vat|tax\w*|added|plus|raise|rise|increase\w*|surcharge|interest|on top|more"
    r"|mwst|steuer\w*|mehrwertsteuer|trinkgeld|aufschlag|erhoh\w+|zinsen|iva|propina|impuest\w+"
    r"|aument\w+|tva|taxes?|pourboire|hausse|augment\w+|mancia|imposta|gorjeta|imposto|btw|fooi)\b"
    r"|税|チップ"
)
_REST_ASKED = re.compile(
    r"\b(?:(?:what|how much)\b[^?]*\b(?:pay|cost|costs|owe|charged|come to|end up|new price|total"
    r"|altogether|left|with)|zahl\w+|kostet|bezahl\w+|insgesamt|pago|pagar\w*|cuesta|cuestan|queda"
    r"|en total|payer\w*|coute|coutera|reste|avec|paghero|pagare|costa|costera|in totale"
    r"|pagarei|paga|custa|fica)\b|いくら(?:になり|です|払)"
)
"""How a question wants to know what is to be paid, not the percentage of it."""


_PART_ASKED = re.compile(
    r"\b(?:how much|what|whats)\b[^?]{0,12}\b(?:tip|tax|vat|discount|interest|saving|commission"
    r"|fee)\b"
    r"|\b(?:save|wie ?viel ist (?:das|der|die)|spare|sparst|ahorr\w+|economis\w+|risparmi\w+)\b"
    r"|\b(?:cu[aá]nto|combien|quanto)\b[^?]{0,12}\b(?:propina|pourboire|mancia|gorjeta)\b"
)


def _results_asked(text: str) -> tuple[str, ...]:
    """Return which of the results of a percentage a question wants: fewer mislead a model less."""
    rest = ("less",) if _REDUCED.search(text) else ("more",) if _RAISED.search(text) else ()
    if not rest:
        return ("part", "less", "more")
    part = ("part",) if _PART_ASKED.search(text) or not _REST_ASKED.search(text) else ()
    return part if part and not _REST_ASKED.search(text) else (*part, *rest)


def _percentages(question: Question) -> Iterator[str]:
    """Return the share, the sum and the difference of the one percentage and the one amount."""
    text = question.text
    if not _AMOUNT_ASKED.search(text) and not question.base:
        return
    if any("%" in expression for expression, _ in _calculated(question)):
        return
    shares = _PERCENTAGE.findall(text)
    rest = _PERCENTAGE.sub(" ", text)
    amounts = [found for found in re.findall(_NUMBER, _TIMES.sub(" ", rest)) if float(found)]
    if not amounts and question.base:
        amounts = [question.base]
    if len(shares) == 1 and len(amounts) == 1:
        share, amount = shares[0], amounts[0]
        part = _calculate(f"{share}% of {amount}")
        more, less = (_calculate(f"{amount} {sign} {share}%") for sign in "+-")
        results = {
            "part": f"{share}% of {amount} = {part}",
            "less": f"{amount} with {share}% taken off = {less}",
            "more": f"{amount} with {share}% added = {more}",
        }
        yield ", ".join(results[name] for name in _results_asked(text))
    elif not shares and len(amounts) == 2 and _WHAT_PERCENT.search(text):
        part, whole = amounts
        for left, right in ((part, whole), (whole, part)):
            if (result := _calculate(f"{left} / {right} in %")) is not None:
                yield f"{left} of {right} is {result}"


_PERIOD = {
    "day": "day|tag|dia|jour|giorno",
    "week": "week|woche|semana|semaine|settimana",
    "month": "month|monat|mes|mois|mese",
    "year": "year|jahr|ano|an|annee|anno",
    "hour": "hour|hr|h|stunde|std|hora|heure|ora|uur",
}
_EACH = (
    r"(?:an?|the|die|der|das|le|la|el|il|per|each|every|pro|im|in der|jeden|jede|je|al|a la|por"
    r"|cada|par|chaque|ogni)\b|(?:al)?l'"
)
_PLURAL_PERIODS = {
    "day": "days?|tage?n?|dias?|jours?|giorn[oi]",
    "week": "weeks?|wochen?|semanas?|semaines?|settiman[ae]",
    "month": "months?|monate?n?|mes(?:es)?|mois|mes[ei]",
    "year": "years?|jahre?n?|anos?|ans?|annees?|ann[oi]",
    "hour": "hours?|hrs?|stunden?|std|horas?|heures?|or[ae]|uren|uur",
    "minute": "minutes?|minuten?|minutos?|minut[oi]|mins?",
    "second": "seconds?|sekunden?|segundos?|secondes?|second[oi]|secs?",
}
_CALENDAR = {"month": 1, "year": 12}


def _rates(question: Question) -> Iterator[str]:
    """Return what so much a month comes to in some years and months."""
    text = question.text
    each = "|".join(f"(?P<{unit}>{words})" for unit, words in _PERIOD.items())
    rate = re.search(rf"({_NUMBER})(?:[^\d.?!]{{0,25}}?\b(?:{_EACH}) ?| ?/ ?)(?:{each})\b", text)
    if rate is None:
        return
    unit = next(name for name in _PERIOD if rate[name] is not None)
    spans = _durations(text[: rate.start()] + " ; " + text[rate.end() :])
    if len(spans) != 1 or len(re.findall(_NUMBER, text)) != 1 + len(spans[0]):
        return
    count = _in_unit(spans[0], unit)
    if count is not None and (result := _calculate(f"{rate[1]} * {count}")) is not None:
        yield f"{rate[1]} a {unit} for {count} {unit}s = {rate[1]} * {count} = {result}"
    elif count is None and unit == "hour" and {name for _, name in spans[0]} <= {"hour", "minute"}:
        minutes = " + ".join(f"{n} * 60" if name == "hour" else n for n, name in spans[0])
        if (result := _calculate(f"{rate[1]} * ({minutes}) / 60")) is not None:
            yield f"{rate[1]} an hour * ({minutes}) minutes / 60 = {result}"


Span = tuple[tuple[str, str], ...]
"""A duration as it is written: numbers with their units."""


def _durations(text: str) -> list[Span]:
    """Return the durations of a text; parts with nothing but "and" between them are one."""
    part = "|".join(f"(?P<{unit}>{words})" for unit, words in _PLURAL_PERIODS.items())
    found: list[list[tuple[str, str]]] = []
    end = -1
    for match in re.finditer(rf"(?<![\w.])(\d+(?:\.\d+)?) ?(?:(?:{part})\b|(?P<h>h)\b)", text):
        unit = next((name for name in _PLURAL_PERIODS if match[name] is not None), "hour")
        joined = end >= 0 and re.fullmatch(
            r"[ .,]*(?:and|und|y|et|e)? *", text[end : match.start()]
        )
        if joined:
            found[-1].append((match[1], unit))
        else:
            found.append([(match[1], unit)])
        end = match.end()
    return [tuple(span) for span in found]


def _in_unit(span: Span, unit: str) -> str | None:
    """Return a duration as a number of one unit, where that is exact."""
    if unit in _CALENDAR:
        if any(name not in _CALENDAR for _, name in span):
            return None
        terms = " + ".join(f"{count} * {_CALENDAR[name]}" for count, name in span)
        result = _calculate(f"({terms}) / {_CALENDAR[unit]}")
    else:
        if any(name in _CALENDAR for _, name in span):
            return None
        terms = " + ".join(f"{count} {name}s" for count, name in span)
        result = _calculate(f"({terms}) / 1 {unit}")
    return result if result is not None and re.fullmatch(r"\d+(?:\.\d+)?", result) else None


_EACH_WORDS = (
    r"each|apiece|a piece|per piece|per \w+|a (?:pop|head)|pro stuck|das stuck|stuck|cada un[oa]"
    r"|cada"
    r"|la unidad|chacune?|l'unite|piece|l'uno|ciascun[oa]|al pezzo|cada uma?|per stuk"
)
_EACH_PRICE = re.compile(
    rf"({_NUMBER}) ?(?:euros?|cents?|bucks|pounds?)? ?(?:{_EACH_WORDS})\b"
    rf"|\b(?:je|jeweils|a|zu je|at|for|each (?:costs?|is|at|for|one (?:costs?|is))|una? cuesta"
    rf"|a) ({_NUMBER})(?: each)?\b"
)
_EACH_COUNTED = re.compile(
    r"\b1 ?(?:個|本|枚|冊|つ|人|杯|个|张)(?:につき|あたり)? ?(\d+(?:\.\d+)?)"
    r".*?(\d+) ?(?:個|本|枚|冊|つ|人|杯|个|张)"
)
_EACH_ONE = re.compile(
    r"\b(?:each|apiece|a piece|per piece|je|jeweils|pro stuck|das stuck|cada un[oa]|cada"
    r"|chacun|chacune|l'un|ciascuno|ciascuna|l'uno|cada um|cada uma)\b"
    r"|ずつ|1 ?[個本枚冊つ杯]|每个|每"
)


def _prices(question: Question) -> Iterator[str]:
    """Return what several of something cost of which the price of one is told."""
    text = question.text
    numbers = re.findall(_NUMBER, text)
    asked = re.search(r"\b(?:cost|kosten|cuesta\w*|coutent|costano|custam|total|pay)\b", text)
    if (found := _EACH_COUNTED.search(text)) is not None and len(numbers) == 3:
        numbers = list(found.groups())
    if len(numbers) != 2 or "%" in text or not _EACH_ONE.search(text) or _SHARED.search(text):
        return
    if not (_EACH_PRICE.search(text) or re.search(r"1 ?[個本枚冊つ杯]|ずつ|每", text)):
        return
    result = _calculate(" * ".join(numbers)) if asked or _AMOUNT_ASKED.search(text) else None
    if result is not None:
        yield f"{' * '.join(numbers)} = {result}"


_PEOPLE = (
    r"(?:people|persons?|friends|guests|kids|children|adults|heads|players|roommates|flatmates"
    r"|housemates|colleagues|coworkers|ways|ppl|leuten?|personen|freunden?|kindern?|kopfe|gaste"
    r"|erwachsene"
    r"|personas|amigos|ninos|personnes|amis|enfants|persone|amici|bambini|pessoas|criancas|mensen)"
)
_COUNT_OF_PEOPLE = re.compile(
    rf"({_NUMBER}) (?:\w+ ){{0,1}}{_PEOPLE}\b|\b(?:the )?({_NUMBER}) of us\b"
    rf"|\b(?:we (?:are|were|will be)|we're|we'll be|there(?:'ll| will) be|wir (?:sind|waren)"
    rf"|(?:somos|eramos|estamos)"
    rf"|on (?:est|etait)"
    rf"|nous (?:sommes|etions)"
    rf"|(?:siamo|eravamo)(?: in)?|(?:somos|eramos)(?: em)?) ({_NUMBER})\b"
    rf"|\b(?:zu|unter|between|among|entre|in|fra|tra) ({_NUMBER})(?: of us| personen| personas"
    rf"| personnes| persone)?\b"
    rf"|({_NUMBER}) ?(?:人|个人)"
)
_SHARED = re.compile(
    r"\b(?:split\w*|share[ds]?|divid\w+|each (?:of us|person|one of|pay\w*|owe\w*|get\w*|have to"
    r"|has to)"
    r"|does each|do(?:es)? (?:we|everyone|everybody) (?:each )?(?:pay|owe|get)"
    r"|how much (?:is (?:it|that) )?(?:each|apiece)\b"
    r"|(?:per|a) (?:person|head)|pro (?:person|kopf|nase)|jede[rn]?|teilen|aufteil\w*"
    r"|cada un[oa]|por (?:persona|cabeza|pessoa)|par (?:personne|tete)|chacune?|a testa|a persona"
    r"|ciascuno|cada um)\b"
    r"|割り勘|一人(?:あたり|当たり|いくら)|每人|平分"
)


def _shares(question: Question) -> Iterator[str]:
    """Return what is each one's share of an amount, where the number of people is told."""
    text = question.text
    if not _SHARED.search(text) or "%" in text or not _AMOUNT_ASKED.search(text):
        return
    counts = [str(found[found.lastindex or 0]) for found in _COUNT_OF_PEOPLE.finditer(text)]
    amounts = re.findall(_NUMBER, _TIMES.sub(" ", text))
    if len(counts) != 1 or len(amounts) != 2 or "." in counts[0]:
        return
    amounts.remove(counts[0])
    if (result := _calculate(f"{amounts[0]} / {counts[0]}")) is not None:
        yield f"{amounts[0]} / {counts[0]} = {result} for each"


def _unit_prices(question: Question) -> Iterator[str]:
    """Return what an amount costs of which the price of a unit is told: "3 kilos at 7 a kilo"."""
    text = re.sub(r"\b(?:kgs?|chil[oi]|quilos?|kilogram\w*)\b", "kilo", question.text)
    if len(re.findall(_NUMBER, text)) != 2 or "%" in text or not _AMOUNT_ASKED.search(text):
        return
    word = r"[^\W\d_]{2,}"
    rate = re.search(rf"({_NUMBER})(?:[^\d.?!]{{0,12}}?\b(?:{_EACH}) ?| ?/ ?)({word})", text)
    if rate is None or any(re.fullmatch(words, rate[2]) for words in _PERIOD.values()):
        return
    rest = text[: rate.start()] + " ; " + text[rate.end() :]
    amount = re.search(rf"({_NUMBER}) ?({word})", rest)
    if amount is None or not _same_word(rate[2], amount[2]):
        return
    if (result := _calculate(f"{amount[1]} * {rate[1]}")) is not None:
        yield f"{amount[1]} * {rate[1]} = {result}"


_RECIPE = re.compile(
    rf"\b(?:serves?|feeds?|(?:recipe|rezept|receta|recette|ricetta|receita|recept)\b[^\d.?!]{{0,25}}?"
    rf"(?:for|fur|para|pour|per|voor)) ({_NUMBER})\b"
)


def _servings(question: Question) -> Iterator[str]:
    """Return how much of something more people need than a recipe is for."""
    text = question.text
    recipe = _RECIPE.search(text)
    if recipe is None or not _AMOUNT_ASKED.search(text):
        return
    rest = text[: recipe.start()] + " ; " + text[recipe.end() :]
    counts = [found for found in _COUNT_OF_PEOPLE.finditer(rest) if found[0].strip()]
    if len(counts) != 1:
        return
    people = str(counts[0][counts[0].lastindex or 0])
    amounts = re.findall(
        r"(?<![\w.,])(\d+(?:\.\d+)?) ?([^\W\d_]*)",
        rest[: counts[0].start()] + " ; " + rest[counts[0].end() :],
    )
    if len(amounts) == 1 and (result := _calculate(f"{amounts[0][0]} * {people} / {recipe[1]}")):
        yield f"for {people}: {amounts[0][0]} * {people} / {recipe[1]} = {result} {amounts[0][1]}"


_PER = (
    r"(?:per|for every|for|in|every|auf|pro|je|alle|fur|por|cada|para|pour|tous les|sur|ogni|su"
    r"|a cada)"
)


def _proportions(question: Question) -> Iterator[str]:
    """Return a rule of three: "6.8 litres per 100 km, how many for 435 km?"."""
    text = question.text
    numbers = re.findall(_NUMBER, text)
    if len(numbers) != 3 or "%" in text or not _AMOUNT_ASKED.search(text):
        return
    word = r"[^\W\d_]+"
    rate = re.search(
        rf"({_NUMBER}) ?({word})(?: (?!{_PER}\b){word}){{0,4}}? {_PER} ({_NUMBER}) ?({word})\b",
        text,
    )
    if rate is None:
        return
    rest = text[: rate.start()] + " ; " + text[rate.end() :]
    wanted = re.search(rf"({_NUMBER}) ?({word})\b", rest)
    if wanted is None:
        return
    # What is wanted is counted in the second of the two units, or in the first.
    if _same_word(rate[4], wanted[2]):
        expression, unit = f"{rate[1]} * {wanted[1]} / {rate[3]}", rate[2]
    elif _same_word(rate[2], wanted[2]):
        expression, unit = f"{rate[3]} * {wanted[1]} / {rate[1]}", rate[4]
    else:
        return
    if (result := _calculate(expression)) is not None:
        yield f"{expression} = {result} {unit}"


def _same_word(one: str, other: str) -> bool:
    """Tell whether two words differ at most by their endings."""
    return one[:_STEM] == other[:_STEM]


_STEM = 3
_RULES = (*(_sums, _percentages, _rates, _proportions, _prices, _unit_prices, _shares, _servings),)


# -- units -----------------------------------------------------------------------------------------

_UNIT_WORDS = {
    "km": "kilometern?|kilometros?|kilometres?|chilometr[oi]|quilometros?|キロ|公里",
    "m": "metern?|metros?|metr[oi]",
    "cm": "zentimetern?|centimetros?|centimetr[oi]|センチ|厘米",
    "mile": "meilen?|millas?|miles?|miglia|miglio|milhas?|マイル|英里",
    "foot": "fuss|pies?|pieds?|piedi|piede|pes|フィート|英尺",
    "inch": "zoll|pulgadas?|pouces?|pollic[ei]|polegadas?|インチ|英寸",
    "kg": "kilos?|kilogramms?|kilogramos?|kilogrammes?|chil[oi]|quilos?|公斤",
    "g": "gramm|gramos?|grammes?|gramm[oi]|gramas?|グラム|克",
    "pound": "pfund|libras?|livres?|libbr[ae]|ポンド|磅",
    "l": "litern?|litros?|litres?|litr[oi]|リットル|升",
    "celsius": "grad celsius|degrees? celsius|degres celsius|grados celsius|gradi celsius"
    "|graus celsius|centigrade|摂氏|celsius",
    "fahrenheit": "grad fahrenheit|degrees? fahrenheit|degres fahrenheit|grados fahrenheit"
    "|gradi fahrenheit|graus fahrenheit|華氏|fahrenheit",
    **_PLURAL_PERIODS,
}
_NOT_UNITS = frozenset(
    ("in", "a", "as", "at", "to", "an", *"cdfhkmgbnwstl", "pa", "bar", "cal", "min", "ton", "stone")
)
"""Names of units that are more often words; as units they count behind a number alone."""


def _unit(word: str, *, counted: bool) -> Unit | None:
    for name, words in _UNIT_WORDS.items():
        if re.fullmatch(words, word):
            return calculator_unit(name)
    if word in _NOT_UNITS and not (counted and word in ("m", "g", "l", "h", "t", "min")):
        return None
    return calculator_unit(word)


_ONE = re.compile(
    r"\b(?:in|are|is|has|have|sind|hat|son|tiene|sont|font|sono|tem)(?: there in)? "
    r"(?:an?|one|eine[rmn]?|un[ae]?|um|uma) (?=[a-z])"
)


def _conversions(question: Question) -> Iterator[str]:
    """Return the one measured quantity of a question in the one other unit that it names."""
    text = question.text
    if _DIGIT.search(text) is None and "°" not in text and _ONE.search(text) is None:
        return
    text = re.sub(r"(\d+ ?(?:ft|feet|foot)) (\d+) ?(?:in|\")(?![a-z])", r"\1 \2 inches", text)
    text = re.sub(
        r"(?<=\d) ?(?:°|degrees?|grad|grados|degres|gradi|graus) ?([cf])\b", r" °\1", text
    )
    text = re.sub(r"(?<=\d) ?f\b(?=.*\bcelsius\b)", " °f", text)
    text = re.sub(r"(?<=\d) ?c\b(?=.*\bfahrenheit\b)", " °c", text)
    text = re.sub(r"(?<=\d) ?c (in|to) f\b", r" °c \1 °f", text)
    text = re.sub(r"(?<=\d) ?f (in|to) c\b", r" °f \1 °c", text)
    text = re.sub(r"°c\b", "celsius", re.sub(r"°f\b", "fahrenheit", text))
    text = _ONE.sub(" 1 ", text)
    if re.search(_NUMBER, text) is None:
        return
    counted: list[tuple[str, Unit]] = []
    wanted: list[Unit] = []
    names = "|".join(
        sorted(
            (way for words in _UNIT_WORDS.values() for way in words.split("|")),
            key=len,
            reverse=True,
        )
    )
    for match in re.finditer(
        rf"(?:(?P<number>{_NUMBER}) ?)?(?P<word>(?:{names})\b|[a-z]+|[^\W\d_]+)", text
    ):
        unit = _unit(match["word"], counted=match["number"] is not None)
        if unit is not None and match["number"] is not None:
            counted.append((match["number"], unit))
        elif unit is not None and unit not in wanted and _is_wanted(text[: match.start()]):
            wanted.append(unit)
    wanted = [unit for unit in wanted if unit not in [counted_unit for _, counted_unit in counted]]
    if not counted or len(wanted) != 1 or len(re.findall(_NUMBER, text)) != len(counted):
        return
    if any(unit.dimensions != wanted[0].dimensions for _, unit in counted):
        return
    yield from _converted(counted, wanted[0])


_BEFORE_WANTED = re.compile(
    r"(?:\b(?:many|much|in|into|to|as|of|the|viele?|zu|nach|en|de|d|cuant[oa]s|combien|quant[ieo]s?"
    r"|quantas|a|em|ai|alle)|'|\W|^|[\u3040-\u9fff])\s*\Z"
)


def _is_wanted(before: str) -> bool:
    """Tell whether a unit is asked for, by what stands before it: "in feet", not "this week"."""
    return _BEFORE_WANTED.search(before) is not None and before.rstrip()[-4:] != "this"


def _converted(counted: Iterable[tuple[str, Unit]], wanted: Unit) -> Iterator[str]:
    total: Quantity | None = None
    parts: list[str] = []
    for amount, unit in counted:
        quantity = measured(number(Fraction(amount)), unit)
        parts.append(value_text(quantity))
        if total is not None and quantity.has_offset:
            return
        total = quantity if total is None else replace(total, value=total.value + quantity.value)
    if total is not None:
        result = _result_text(replace(total, units=((wanted, 1),), months=None))
        yield f"{' '.join(parts)} = {result}"
