"""Questions about days and times that have one exact answer, worked out by the calendar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache

from asterism.records import dataclass
from asterism.times import (
    MONTH_NUMBERS,
    MONTH_PATTERN,
    WEEKDAYS,
    add_months,
    in_plain_english,
    zone_named,
)

_WEEKDAY_NAMES = {
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "pt": "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
    "ja": "月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 日曜日",
    "zh": "星期一 星期二 星期三 星期四 星期五 星期六 星期日",
}
_DAY_ASKED = re.compile(
    r"\b(?:(?:what|which) (?:\w+ )?(?:week)?days?|weekday|day of the week|date|wochentag|datum"
    r"|welche[rnms]? (?:\w+ )?tag|was fur ein tag|(?:que|cual) (?:\w+ )?dia|fecha"
    r"|quel(?:le)? (?:jour|date)|(?:che|quale) giorno|data|que dia|dia da semana"
    r"|dia de la semana|jour de la semaine|giorno della settimana|falls? on)\b"
    r"|何曜日|曜日|何日|日付|星期几|周几|几号|日期|哪天"
)
_DAYS_ASKED = re.compile(
    r"\b(?:how (?:many (?:\w+ )?(?:days|weeks|months|years|nights|sleeps)|long|old)"
    r"|(?:days?|weeks?|months?) (?:left|until|till|to go|remain\w*)"
    r"|wie ?viele? (?:\w+ )?(?:tage|wochen|monate|jahre|nachte)|wie lange|wie alt"
    r"|cuant[oa]s? (?:\w+ )?(?:dias|semanas|meses|anos|tiempo|falta\w*)|faltan?"
    r"|combien de (?:jours|semaines|mois|temps|nuits)|quel age"
    r"|quant[ieoa]s? (?:\w+ )?(?:giorni|settimane|mesi|anni|tempo|manca\w*|dias|semanas|meses|anos)"
    r"|mancano|manca|faltam?|quantos anos)\b"
    r"|あと何|何日(?:間|あ|残)|まで.{0,6}何[日週]|何歳|多少天|几天|多久|还有|多长"
)
_UNTIL = re.compile(
    r"\b(?:until|till|to|before|since|from|bis|seit|hasta|para|desde|jusqu|avant|depuis|fino|al"
    r"|a|da|ate|desde)\b|まで|から|到|离|距"
)
_NOW_ASKED = re.compile(
    r"\b(?:time is it|(?:got|have) the time|what(?:'?s| is) the (?:\w+ )?time|what time now"
    r"|current time"
    r"|time (?:right )?now"
    r"|time in|wie spat (?:ist|haben)|wie ?viel uhr (?:ist|haben)|welche uhrzeit|uhrzeit (?:ist|in)"
    r"|que horas? (?:es|son|sao|e(?! que)|tienes|tem)|hora es|quelle heure (?:est|il)|heure est-il"
    r"|il est quelle heure|che or[ae] (?:e|sono)|ora e)\b"
    r"|今.{0,6}何時|何時.{0,4}今|现在.{0,6}几点|几点了"
)
_MOMENT_ASKED = re.compile(
    r"\b(?:what time|when|at what|wie spat|wann|um wie ?viel uhr|a que hora|que hora|cuando"
    r"|quelle heure|quand|che ora|quando|que horas)\b|何時|いつ|几点|什么时候"
)
_TODAY_ASKED = re.compile(
    r"\b(?:(?:what|which) (?:week)?day (?:is it|are we|of the week is it)|what(?:'?s| is) the date"
    r"|welche[rnms]? (?:(?:wochen)?tag|datum) (?:ist|haben)|que (?:dia|fecha) es|que fecha"
    r"|a que dia|quel jour (?:sommes|est|on)|quelle est la date|che giorno e|che data"
    r"|que dia e|qual e a data)\b"
)
_WORDS = {
    "after": "nach|despues de|despues del|apres|dopo|depois de|depois do|later than|from",
    "before": "vor|antes de|antes del|avant|prima di|prima del|antes do",
    "24 december": "christmas eve|heiligabend|heiligem abend|nochebuena|veille de noel"
    "|vigilia di natale|vespera de natal|クリスマスイブ|平安夜",
    "25 december": "christmas(?: day)?|weihnachten|navidad|noel|natale|natal|クリスマス|圣诞节",
    "31 december": "new year's eve|new years eve|silvester|nochevieja|saint-sylvestre"
    "|san silvestro|vespera de ano novo|大晦日|除夕夜",
    "1 january": "new year(?:'?s)?(?: day)?|neujahr|ano nuevo|nouvel an|capodanno"
    "|ano novo|元日|元旦",
    "31 october": "halloween|ハロウィン|万圣节",
    "14 february": "valentine'?s(?: day)?|valentinstag|san valentin|saint-valentin|san valentino"
    "|バレンタインデー|情人节",
    "beforeyesterday": "the day before yesterday|vorgestern|anteayer|antier|avant-hier|l'altro ieri"
    "|anteontem|一昨日|おととい|前天",
    "yesterday": "gestern|ayer|ieri|ontem|昨日|きのう|昨天",
    "aftertomorrow": "明後日|あさって|后天|後天",
    "tomorrow": "明日|あした|明天",
    "today": "今日|きょう|今天",
}  # fmt: skip
_DATE = (
    r"(?:(?P<iso>\d{4}-\d{2}-\d{2})"
    r"|(?P<dotted>\d{1,2}\.\d{1,2}\.(?:\d{4})?)"
    rf"|(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)? (?P<month>{MONTH_PATTERN})\b\.?"
    r"(?: (?P<year>\d{4}))?"
    rf"|(?P<month2>{MONTH_PATTERN})\b\.? (?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.]\d)"
    r"(?: (?P<year2>\d{4}))?)"
)
_NAMED = r"(?P<named>today|tomorrow|yesterday|aftertomorrow|beforeyesterday)"
_WEEKDAY = rf"(?:(?P<which>next|last) )?(?P<weekday>{'|'.join(WEEKDAYS)})"
_OFFSET = r"(?P<count{0}>\d+|an?) (?P<unit{0}>minute|hour|day|week|month|year)s?"
_A_DAY = (
    rf"(?:\b(?P<moved>{_OFFSET.format('')}) (?P<side>after|before) )?"
    rf"(?:{_DATE}|\b{_NAMED}\b|\b{_WEEKDAY}\b)"
    rf"|\bin (?P<later>{_OFFSET.format('2')})\b|\b(?P<ago>{_OFFSET.format('3')}) ago\b"
    rf"|\b(?P<hence>{_OFFSET.format('4')}) (?:from|after) (?:now|today)\b"
)
_NAMED_DAYS = {
    "today": 0,
    "tomorrow": 1,
    "yesterday": -1,
    "aftertomorrow": 2,
    "beforeyesterday": -2,
}
_SAID_AS = {
    "aftertomorrow": "the day after tomorrow",
    "beforeyesterday": "the day before yesterday",
}


@dataclass(frozen=True, slots=True)
class NamedDay:
    """A day that a message names, and how."""

    name: str
    day: date
    is_date: bool = False
    """Whether it is a day of the calendar, on whatever day it is said."""


def asks_for_a_day(text: str) -> bool:
    """Tell whether a question, in lower case, is about which day something is."""
    return _DAY_ASKED.search(text) is not None and _DAYS_ASKED.search(text) is None


def place_of_time(text: str) -> int:
    """Return where a text first asks for a day or a time; its length if it does not."""
    patterns = (_DAY_ASKED, _DAYS_ASKED, _NOW_ASKED, _MOMENT_ASKED)
    places = [found.start() for pattern in patterns if (found := pattern.search(text)) is not None]
    return min(places, default=len(text))


def day_facts(text: str, language: str, here: datetime) -> Iterator[str]:
    """Return what a question about days comes to."""
    if _DAYS_ASKED.search(text) is None and _DAY_ASKED.search(text) is None:
        return
    today = here.date()
    found = list(
        {named.day: named for named in _named_days(_day_words(text, language), today)}.values()
    )
    others = [named for named in found if named.day != today]
    if _DAYS_ASKED.search(text) and others:
        dates = [named.day for named in others if named.is_date]
        if len(dates) == 2:
            yield _between(*dates)
        elif len(dates) == 1 or (len(others) == 1 and _UNTIL.search(text)):
            yield _until(dates[0] if dates else others[0].day, today, language)
    elif asks_for_a_day(text):
        if not found and _TODAY_ASKED.search(text):
            found = [NamedDay("today", today)]
        for named in found[:3]:
            name = _SAID_AS.get(named.name, named.name)
            verb = "was" if named.day < today else "is"
            yield f"{name[0].upper()}{name[1:]} {verb} {day_in_words(named.day, language)}"


def day_in_words(day: date, language: str = "en") -> str:
    """Return a day with its weekday, also as the person's language calls that."""
    text = f"{day:%A}, {day.day} {day:%B %Y}"
    if names := _WEEKDAY_NAMES.get(language):
        text += f" ({names.split()[day.weekday()]})"
    return text


def _between(first: date, last: date) -> str:
    days = abs((last - first).days)
    return f"From {_short(first)} to {_short(last)} it is {_days_text(days)}"


def _until(day: date, today: date, language: str) -> str:
    days = (day - today).days
    if days >= 0:
        then = day_in_words(day, language)
        return f"From today ({_short(today)}) to {then} it is {_days_text(days)}"
    years = today.year - day.year - ((today.month, today.day) < (day.month, day.day))
    more = f", {years} whole year{'s' * (years != 1)}" if years else ""
    then = day_in_words(day, language)
    return f"From {then} to today ({_short(today)}) it is {_days_text(-days)}{more}"


def _short(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def _days_text(days: int) -> str:
    weeks, rest = divmod(days, 7)
    text = f"{days} day{'s' * (days != 1)}"
    if weeks < 2:
        return text
    return f"{text} ({weeks} weeks{f' and {rest} day' + 's' * (rest != 1) if rest else ''})"


def _day_words(text: str, language: str) -> str:
    """Return a text with its words about days in the few English ones that are read here."""
    text = re.sub(r"(\d{1,2}) ?月 ?(\d{1,2}) ?[日号]", _cjk_date, text)
    text = re.sub(r"(\d+) ?(?:日|天)(?:後|后)", r" in \1 day ", text)
    text = re.sub(r"(\d+) ?(?:日|天)前", r" \1 day ago ", text)
    text = re.sub(r"(\d+) ?(?:週間|周|个星期|星期)(?:後|后)", r" in \1 week ", text)
    if language == "fr":
        text = re.sub(r"\bhier\b", "yesterday", text)
    # "Vor" and "hace" say how long ago something was where a duration follows.
    text = re.sub(r"\b(?:vor|hace|il y a|ha) (\d+ \w+)", r"\1 ago", text)
    text = re.sub(r"(\d+ giorn\w|\d+ settiman\w|\d+ mes\w|\d+ ann\w) fa\b", r"\1 ago", text)
    for meaning, words in _WORDS.items():
        text = re.sub(rf"(?<![a-z'-])(?:{words})(?![a-z'-])", f" {meaning} ", text)
    return in_plain_english(re.sub(r"[()¿¡?!]", " ", text))


def _cjk_date(found: re.Match[str]) -> str:
    month = next((name for name, value in MONTH_NUMBERS.items() if value == int(found[1])), "")
    return f" {found[2]} {month} "


def _named_days(words: str, today: date) -> Iterator[NamedDay]:
    place = 0
    for match in re.finditer(_A_DAY, words):
        if match.start() < place:
            continue
        place = match.end()
        try:
            named = _named_day(match, today)
        except (ValueError, OverflowError):
            continue
        if named is not None:
            yield named


def _named_day(match: re.Match[str], today: date) -> NamedDay | None:
    for number, group, sign in (("2", "later", 1), ("3", "ago", -1), ("4", "hence", 1)):
        if match[group] is not None:
            day = _moved(today, match[f"count{number}"], match[f"unit{number}"], sign)
            name = {"later": "in {}", "ago": "{} ago", "hence": "{} from today"}[group]
            return NamedDay(name.format(_counted(match[group])), day) if day is not None else None
    if match["named"] is not None:
        name = match["named"]
        day, is_date = today + timedelta(days=_NAMED_DAYS[name]), False
    elif match["weekday"] is not None:
        name, is_date = match["weekday"].capitalize(), False
        ahead = (WEEKDAYS.index(match["weekday"]) - today.weekday()) % 7
        if match["which"] == "last":
            ahead = ahead - 7
        elif match["which"] == "next":
            ahead = ahead or 7
        day = today + timedelta(days=ahead)
        name = f"{match['which']} {name}" if match["which"] else name
    else:
        day, is_date = _date_of(match, today), True
        name = _short(day)
    if match["moved"] is not None:
        moved = _moved(day, match["count"], match["unit"], 1 if match["side"] == "after" else -1)
        if moved is None:
            return None
        return NamedDay(f"{_counted(match['moved'])} {match['side']} {name}", moved)
    return NamedDay(name, day, is_date)


def _counted(offset: str) -> str:
    count, _, unit = offset.partition(" ")
    return f"{count} {unit.rstrip('s')}{'' if count in ('1', 'a', 'an') else 's'}"


def _date_of(match: re.Match[str], today: date) -> date:
    """Return a date; one without a year is the next of them."""
    if match["iso"] is not None:
        return date.fromisoformat(match["iso"])
    if match["dotted"] is not None:
        day, month, year = (*match["dotted"].split("."), "")[:3]
        return _dated(int(day), int(month), year, today)
    number = "2" if match["month2"] is not None else ""
    month = MONTH_NUMBERS[match[f"month{number}"]]
    return _dated(int(match[f"day{number}"]), month, match[f"year{number}"] or "", today)


def _dated(day: int, month: int, year: str, today: date) -> date:
    if year:
        return date(int(year), month, day)
    this_year = date(today.year, month, day)
    return this_year if this_year >= today else date(today.year + 1, month, day)


def _moved(day: date, count: str, unit: str, sign: int) -> date | None:
    number = sign * (1 if count in ("a", "an") else int(count))
    if unit in ("month", "year"):
        return add_months(day, number * (12 if unit == "year" else 1))
    return (
        day + timedelta(days=number * (7 if unit == "week" else 1))
        if unit in ("day", "week")
        else None
    )


# -- times of day ----------------------------------------------------------------------------------

_CLOCK = re.compile(
    r"(?<![\d.:])(?P<hour>\d{1,2})(?:[:h](?P<minute>\d{2})(?:\s?(?P<half>[ap])\.?m\b)?"
    r"|\s?(?P<half2>[ap])\.?m\b|\s?(?:uhr|o'clock)\b(?:\s(?P<minute2>\d{2})\b)?)(?![\d:])"
)
_DURATION = re.compile(r"(?<![\d.:])(?P<count>\d+(?:\.\d+)?) ?(?P<unit>hour|minute|h|min)s?\b")
_BACK = re.compile(r"\b(?:before|earlier|ago|vorher|fruher|vor|antes|avant|plus tot|prima)\b|前")
_LONG_ASKED = re.compile(
    r"\b(?:how (?:long|many (?:hours|minutes))|wie lange|wie viele? (?:stunden|minuten)|cuant[oa]s?"
    r" (?:tiempo|horas|minutos|dura|falta)|combien|quant[oe] (?:tempo|ore|manca|dura)|quant[oa]s?"
    r" (?:tempo|horas|falta))\b|どのくらい|何時間|何分|多久|多长时间"
)


def time_facts(text: str, language: str, here: datetime, *, tell_now: bool) -> Iterator[str]:
    """Return what a question about a time of day comes to."""
    asked = _MOMENT_ASKED.search(text) is not None
    places = _places(text) if _NOW_ASKED.search(text) else []
    for name, zone in places[:2]:
        there = here.astimezone(zone_named(zone))
        yield f"In {name} ({zone}) it is {there:%H:%M} now, {day_in_words(there.date(), language)}"
    clocks = list(_clocks(text))
    asked_long = _LONG_ASKED.search(text) is not None
    # To read a duration takes long, and no other question needs it.
    minutes = _minutes(in_plain_english(_CLOCK.sub(" ", text))) if asked or asked_long else 0
    if len(clocks) == 2 and not minutes and asked_long:
        first, last = map(_clock_text, clocks)
        yield f"From {first} to {last} it is {_span_text((clocks[1] - clocks[0]) % 1440)}"
    elif minutes and len(clocks) == 1:
        back = _BACK.search(text) is not None
        moved = (clocks[0] + (-minutes if back else minutes)) % 1440
        sign = "-" if back else "+"
        yield f"{_clock_text(clocks[0])} {sign} {_span_text(minutes)} = {_clock_text(moved)}"
    elif minutes and not clocks and asked:
        back = _BACK.search(text) is not None
        moment = here + timedelta(minutes=-minutes if back else minutes)
        when = "ago it was" if back else "from now it is"
        then = f"{moment:%H:%M}, {day_in_words(moment.date(), language)}"
        yield f"{_span_text(minutes)} {when} {then}"
    elif len(clocks) == 1 and asked_long and not places:
        now = here.hour * 60 + here.minute
        left = (clocks[0] - now) % 1440
        yield f"From now ({here:%H:%M}) to {_clock_text(clocks[0])} it is {_span_text(left)}"
    elif tell_now and _NOW_ASKED.search(text) and not places and not clocks:
        yield f"Now it is {here:%H:%M}, {day_in_words(here.date(), language)}"


def _clocks(text: str) -> Iterator[int]:
    """Return the times of day of a text, in minutes."""
    for match in _CLOCK.finditer(text):
        hour = int(match["hour"])
        half = match["half"] or match["half2"]
        if half:
            hour = hour % 12 + (12 if half == "p" else 0)
        minute = int(match["minute"] or match["minute2"] or 0)
        if hour < 24 and minute < 60:
            yield hour * 60 + minute


def _minutes(words: str) -> int:
    """Return the one duration of hours and minutes that some words name; 0 if there is none."""
    parts = list(_DURATION.finditer(words))
    units = [part["unit"][0] for part in parts]
    if len(set(units)) < len(units):
        return 0
    total = sum(float(part["count"]) * (60 if part["unit"][0] == "h" else 1) for part in parts)
    return int(total) if total == int(total) else 0


def _clock_text(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _span_text(minutes: int) -> str:
    hours, rest = divmod(minutes, 60)
    parts = [f"{hours} h"] if hours else []
    return " ".join([*parts, f"{rest} min"] if rest or not parts else parts)


_PLACES = {
    "Asia/Tokyo": "tokio|toquio|japan|japon|giappone|japao|東京|东京|日本",
    "Asia/Shanghai": "beijing|peking|pekin|pechino|pequim|china|chine|cina|北京|上海|中国",
    "Asia/Kolkata": "delhi|new delhi|mumbai|india|indien|inde|bangalore|インド|印度",
    "Asia/Seoul": "korea|south korea|corea|coree|ソウル|韓国|首尔",
    "America/New_York": "nueva york|nova york|nova iorque|boston|washington|miami|philadelphia"
    "|atlanta|ニューヨーク|纽约",
    "America/Los_Angeles": "san francisco|seattle|california|kalifornien|las vegas|san diego"
    "|ロサンゼルス|洛杉矶",
    "America/Chicago": "texas|houston|dallas|シカゴ|芝加哥",
    "America/Mexico_City": "mexico|mexiko|ciudad de mexico|messico|citta del messico",
    "America/Sao_Paulo": "rio|rio de janeiro|brasilia|brasilien|san pablo",
    "Europe/London": "londres|londra|england|edinburgh|manchester|uk|ロンドン|伦敦",
    "Europe/Paris": "parigi|france|frankreich|francia|franca|lyon|marseille|パリ|巴黎",
    "Europe/Berlin": "munich|munchen|hamburg|frankfurt|cologne|koln|berlino|berlim|germany"
    "|deutschland|alemania|allemagne|germania|alemanha|ベルリン|柏林",
    "Europe/Madrid": "barcelona|barcellona|spain|spanien|espana|espagne|spagna|espanha|sevilla",
    "Europe/Rome": "rom|roma|milan|mailand|milano|italy|italien|italia|italie|ローマ|罗马",
    "Europe/Lisbon": "lissabon|lisboa|lisbonne|lisbona|portugal",
    "Europe/Vienna": "wien|viena|vienne|austria|osterreich",
    "Europe/Zurich": "geneva|genf|basel|bern|switzerland|schweiz|suiza|suisse|svizzera",
    "Europe/Moscow": "moskau|moscu|moscou|mosca|モスクワ|莫斯科",
    "Australia/Sydney": "sidney|シドニー|悉尼",
    "Pacific/Honolulu": "hawaii",
    "Pacific/Auckland": "new zealand|neuseeland",
    "Africa/Cairo": "kairo|el cairo|le caire",
}


@lru_cache(maxsize=1)
def _zones() -> dict[str, str]:
    """Return time zones by the places that people name."""
    from zoneinfo import available_timezones

    zones = {
        name.rpartition("/")[2].replace("_", " ").lower(): name
        for name in sorted(available_timezones())
        if "/" in name and not name.startswith(("Etc/", "US/", "posix/", "right/"))
    }
    zones |= {word: zone for zone, words in _PLACES.items() for word in words.split("|")}
    return zones


def _places(text: str) -> list[tuple[str, str]]:
    """Return the places that a text names, with their time zones."""
    known = _zones()
    found: list[tuple[str, str]] = []
    for match in re.finditer(r"[a-z][a-z' -]*[a-z]|[\u3040-\u30ff\u4e00-\u9fff]+", text):
        words = match[0]
        if not words.isascii():
            found += [
                (word, zone) for word, zone in known.items() if not word.isascii() and word in words
            ]
            continue
        for place in re.finditer(
            r"\b(?:in|en|a|au|em|de|di|of|for|to|nach|naar|und|and|y|et|e) (?=[a-z])", words
        ):
            parts = words[place.end() :].split()
            for size in (3, 2, 1):
                name = " ".join(parts[:size])
                if name in known and (name.title(), known[name]) not in found:
                    found.append((name.title(), known[name]))
                    break
    return found
