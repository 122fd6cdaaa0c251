"""What a small model is told beside a message, so that it answers it well.

A note at the end of a message: that its owner has not said what they ask for, what they have said
about themselves, how to answer a statement. Rules choose it from the words of the message.
"""

from __future__ import annotations

import re

from asterism.memory.keep import (
    is_correction,
    is_question,
    put_right,
    sentences,
    to_second_person,
)
from asterism.tools.calculator.questions import language_of
from asterism.types.turns import MARK

UNTOLD = f"{MARK} Your owner has not told you this"
UNKNOWN = f"{UNTOLD}: say that you do not know."
_UNSEEN = (
    f"{MARK} You cannot see what happens around your owner. If it is not said above, say that you "
    "do not know."
)
_TOLD = f"{MARK} Your owner tells you this. Reply to it in a few words."
MAY_BE_KNOWN = f"{MARK} If it is said above, answer with that. If not, say that you do not know it."
_LANGUAGES = {
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "nl": "Dutch",
    "pt": "Portuguese",
    "ja": "Japanese",
    "zh": "Chinese",
}


def lines_on_owner(system: str) -> list[str]:
    """Return the lines that a system prompt has of the block about the owner."""
    block = _BLOCK_ON_OWNER.search(system)
    return block["lines"].splitlines() if block else []


_BLOCK_ON_OWNER = re.compile(r'(?s)<block label="human"[^>]*>(?P<lines>.*?)</block>')


def hints_for(said: str, said_before: list[str], kept: list[str], *, told: bool) -> list[str]:
    """Return what helps a small model to answer a message.

    Args:
        said: The message.
        said_before: What its owner said before it.
        kept: What a block has about the owner, line by line.
        told: Whether the model is told something about the message anyway.
    """
    hints: list[str] = []
    if not told and _WHAT_IS_KNOWN.search(said) and language_of(said) == "en":
        hints.append(_known_of_owner([*kept, *said_before]))
    elif not told and _asks_about_oneself(said):
        statements = [text for text in said_before if len(text) <= MAX_QUOTED]
        statements = [text for text in statements if not text.rstrip().endswith(("?", "\uff1f"))]
        statements = _as_corrected(statements)
        if statements:
            quoted = "; ".join(f'"{text}"' for text in statements[-_MAX_QUOTES:])
            hints.append(in_second_person(f"{MARK} Your owner said before: {quoted}"))
        hints.append(MAY_BE_KNOWN if statements else UNKNOWN)
    elif not told and _HAPPENING.match(said) and is_question(said):
        hints.append(_UNSEEN if said_before else UNKNOWN)
    elif (thanks := _thanks(said) if not told else None) is not None:
        hints.append(thanks)
    elif not is_question(said) and _OWN_THING.match(said):
        hints.append(_TOLD)
    if language := _LANGUAGES.get(language_of(said, least=2)):
        hints.append(f"(Answer in {language}.)")
    return hints


def _thanks(said: str) -> str | None:
    """Return what answers a statement in which somebody tells about themselves.

    Left alone, a small model says it again as if it were about the model itself. None for what
    asks for something or is longer than a few short sentences.
    """
    if len(said) > MAX_QUOTED:
        return None
    told = _in_your_words(said)
    if told is None:
        thanks = _thanks_elsewhere(said)
        return f'{MARK} Answer in one sentence, such as: "{thanks}"' if thanks else None
    clauses = " and that ".join(part[0].lower() + part[1:].rstrip(".! ") for part in told)
    return f'{MARK} Answer in one sentence, such as: "Thanks for telling me that {clauses}!"'


def _thanks_elsewhere(said: str) -> str | None:
    """Return thanks for a statement about its speaker in another language than English."""
    statement, thanks = _ABOUT_SPEAKER_ELSEWHERE.get(language_of(said), (None, ""))
    if statement is None or is_question(said) or is_correction(said):
        return None
    if _ASKS_FOR_ELSEWHERE.search(said) or statement.match(said) is None:
        return None
    return thanks


def _known_of_owner(said: list[str]) -> str:
    """Return what answers the question what the agent knows about its owner, who said this."""
    known: list[str] = []
    statements = [_REMEMBER.sub("", text) for text in said if len(text) <= MAX_QUOTED]
    for text in _as_corrected(statements):
        known += [f"{part.rstrip('.! ')}." for part in _in_your_words(text) or ()]
    if not known:
        return _KNOWN_ABOVE
    return f'{MARK} Answer: "{" ".join(dict.fromkeys(known[-_MAX_KNOWN:]))}"'


def _in_your_words(said: str) -> list[str] | None:
    """Return the sentences of a statement about its speaker as they are said to them.

    None where it is a question, a request or a correction, or not about the speaker.
    """
    if is_question(said) or is_correction(said) or language_of(said) != "en":
        return None
    parts = sentences(_GREETING.sub("", said, count=1))
    if not 0 < len(parts) <= _MAX_SENTENCES:
        return None
    told = [
        to_second_person(part[0].upper() + part[1:])
        for part in parts
        if _ABOUT_SPEAKER.match(part) and not _ASKS_FOR.search(part)
    ]
    found = [text for text in told if text is not None]
    return found if len(found) == len(parts) else None


_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|hiya|good (?:morning|afternoon|evening))(?: there| again| \w+(?=[,!.]))?"
    r"\b[\s,!.:–—-]*",
    re.IGNORECASE,
)
_REMEMBER = re.compile(
    r"\W*(?:please )?(?:remember|note|keep in mind|don'?t forget)(?: that)?\b[\s,:]*", re.IGNORECASE
)
_ABOUT_SPEAKER = re.compile(r"(?:i|we)(?:'(?:m|ve|re)|’(?:m|ve|re))?\b|my\b|our\b", re.IGNORECASE)
_ASKS_FOR = re.compile(
    r"\b(?:want|need|would|could|can|can't|cannot|should|wish|wonder\w*|hope|looking|trying|please"
    r"|help\w*|question|problem|issue|error|remind|remember|forget|forgot|don't know|not sure|i'd"
    r"|we'd|meant|said|told|think|thought|guess|if|ask\w*|answer|tell|explain|pls|plz|what|why"
    r"|how|who|which|whether|where|when)\b|:|\n",
    re.IGNORECASE,
)
"""How a sentence in the first person asks for something rather than tells about its speaker."""
_ABOUT_SPEAKER_ELSEWHERE = {
    language: (re.compile(rf"\W*(?:(?:{greeting})\b\W*)?(?:{start})", re.IGNORECASE), thanks)
    for language, greeting, start, thanks in (
        (
            "de",
            "hallo|hi|hey|guten (?:morgen|tag|abend)|servus|moin",
            (
                r"(?:ich (?:bin|hei(?:ß|ss)e|wohne|lebe|arbeite|habe|komme|mag|liebe)"
                r"|wir (?:sind|haben|wohnen)|meine? \w+ (?:ist|sind|hei(?:ß|ss)t|wohnt|hat))\b"
            ),
            "Danke, dass du mir das erzählst!",
        ),
        (
            "es",
            "hola|buen[oa]s (?:d[ií]as|tardes|noches)",
            (
                r"(?:soy|me llamo|vivo|trabajo|tengo|somos|tenemos"
                r"|mis? \w+ (?:es|son|se llama|vive|tiene))\b"
            ),
            "¡Gracias por contármelo!",
        ),
        (
            "fr",
            "bonjour|salut|bonsoir|coucou",
            (
                r"(?:je (?:suis|m'appelle|vis|travaille)|j'(?:ai|habite)|nous (?:sommes|avons)"
                r"|m(?:on|a|es) \w+ (?:est|sont|s'appelle|habite|a))\b"
            ),
            "Merci de me l'avoir dit !",
        ),
        (
            "it",
            "ciao|salve|buon(?:giorno|asera)",
            (
                r"(?:sono|mi chiamo|vivo|abito|lavoro|ho|abbiamo|siamo"
                r"|(?:il mio|la mia) \w+ (?:[eè]|si chiama|vive|ha))\b"
            ),
            "Grazie per avermelo detto!",
        ),
        (
            "pt",
            "ol[aá]|oi|bom dia|boa (?:tarde|noite)",
            (
                r"(?:(?:eu )?(?:sou|moro|trabalho|tenho|me chamo)|meu nome"
                r"|(?:o meu|a minha|meu|minha) \w+ (?:[eé]|se chama|mora|tem))\b"
            ),
            "Obrigado por me contar!",
        ),
        (
            "nl",
            "hallo|hoi|goede(?:morgen|middag|navond)",
            (
                r"(?:ik (?:ben|heet|woon|werk|heb)|wij? (?:zijn|hebben|wonen)"
                r"|m(?:ijn|'n) \w+ (?:is|zijn|heet|woont|heeft))\b"
            ),
            "Bedankt dat je me dat vertelt!",
        ),
    )
}
"""By language, how a statement about its speaker begins, and how one thanks for it."""
_ASKS_FOR_ELSEWHERE = re.compile(
    r":|\n|\b(?:bitte|kannst|k[oö]nn\w+|sollst|hilf|hilfe|erinner\w*|merk\w*|frage|problem|fehler"
    r"|suche|brauche|m[oö]chte|will|por favor|puedes|ayuda\w*|recu[eé]rda\w*|pregunta|problema"
    r"|necesito|quiero|s'il te pla[iî]t|peux|aide\w*|rappelle\w*|probl[eè]me|besoin|veux"
    r"|per favore|puoi|aiut\w*|ricord\w*|domanda|bisogno|voglio|pode|ajud\w*|lembr\w*|preciso"
    r"|quero|alsjeblieft|kun je|help|herinner\w*|vraag|probleem|nodig|wil)\b",
    re.IGNORECASE,
)
_WHAT_IS_KNOWN = re.compile(
    r"\b(?:know|knew|remember|recall|learn(?:ed|t)?|kept|told you|tell you) (?:\w+ )?about me\b"
    r"|\bwho am i\W*$",
    re.IGNORECASE,
)
"""How somebody asks what the agent knows about them."""
_KNOWN_ABOVE = (
    f'{MARK} Say what is said of your owner above, with "you" and "your" for them. If it is '
    "nothing, say that they have not told you anything yet."
)
_MAX_SENTENCES = 3
_MAX_KNOWN = 6
_OWNERS_WORDS = re.compile(
    rf"{re.escape(MARK)} Your owner "
    r"(?:said before(?P<since>, corrected since)?|(?P<now>corrects it)): "
    r'"(?P<said>[^"]+)"'
)
"""A note that quotes one statement of the owner."""


def in_second_person(note: str) -> str:
    """Return a note with a statement of the owner as it is said to them.

    A small model repeats what it is told: with "My car is red" it would speak of its own car. Of
    several statements it chooses better in their own words.
    """
    quoted = _OWNERS_WORDS.fullmatch(note)
    if quoted is None or language_of(quoted["said"]) != "en":
        return note
    told = to_second_person(quoted["said"])
    if told is None:
        return note
    if quoted["now"]:
        return f'{MARK} Your owner corrects it. Right is now: "{told}"'
    return f'{MARK} You know this from your owner{quoted["since"] or ""}: "{told}"'


def _as_corrected(statements: list[str]) -> list[str]:
    """Return statements, those put right that a later one corrects."""
    found: list[str] = []
    for text in statements:
        right = put_right(found[-1], text) if found and is_correction(text) else None
        if right:
            found[-1] = right
        else:
            found.append(text)
    return found


def _asks_about_oneself(said: str) -> bool:
    """Tell whether a message asks for a fact about the one who says it.

    "For my quiz: what is the capital of Peru?" does not: what follows the question word counts.
    """
    if not is_question(said) or _ADVICE.search(said):
        return False
    asked = next((part for part in reversed(sentences(said)) if is_question(part)), said)
    found = list(_ASKING_WORD.finditer(asked))
    clause = asked[found[0].start() :] if found else re.split(r"[:;,–—]\s", asked)[-1]
    own = _OWN.get(language_of(said))
    return own is not None and own.search(clause) is not None


_HAPPENING = re.compile(
    r"\W*(?:(?:did|has|have|is|are|was|were) (?:the|my|our|any\w*|some\w*|he|she|they)\b.*"
    r"\b(?:yet|today|now|already|this morning|tonight|still|here)\b"
    r"|(?:ist|sind|war|hat|haben) .*\b(?:schon|heute|gerade|jetzt|noch)\b"
    r"|(?:ha|han|est[aá]n?) .*\b(?:ya|hoy|ahora|todav[ií]a)\b"
    r"|(?:est-ce que|est|a|ont) .*\b(?:d[eé]j[aà]|aujourd'hui|maintenant|encore)\b"
    r"|(?:[eè]|ha|hanno|sono) .*\b(?:gi[aà]|oggi|adesso|ancora)\b"
    r"|(?:is|zijn|heeft|was) .*\b(?:al|vandaag|nu|nog)\b)",
    re.IGNORECASE,
)
"""How a question is about what happens just now where its owner is."""
_OWN_THING = re.compile(
    r"\W*(?:my|our|meine?|unsere?|mi|mis|nuestr\w+|mon|ma|mes|notre|nos|il mio|la mia|i miei|le mie"
    r"|o meu|a minha|meus?|minhas?|mijn|onze|私の|うちの|我的)\b",
    re.IGNORECASE,
)
"""How a statement about something of its owner begins."""
_ASKING_WORD = re.compile(
    r"\b(?:what|what's|whats|which|who|who's|whos|whose|when|when's|where|where's|how|do|did|does|is"
    r"|was|are|were|have|had|wie|wer|wo|wann|was|welche\w*|hab\w*|hatte\w*|que|qué|qui[eé]n"
    r"|cu[aá]ndo|d[oó]nde|cu[aá]l\w*|c[oó]mo|cu[aá]nt\w*|qui|quand|o[uù]|quel\w*|comment|combien|chi"
    r"|dove|quando|quale|qual|come|quant\w*|quem|onde|como|wat|wie|waar|wanneer|welke?|hoe)\b",
    re.IGNORECASE,
)
_OWN = {
    language: re.compile(pattern, re.IGNORECASE)
    for language, pattern in {
        "en": r"\b(?:my|mine|ours?|(?:did|have|had|do|was|were|where|when) (?:i|we))\b"
        r"|\bam i\b(?! (?:talking|speaking|chatting|right))",
        "de": r"\b(?:mein\w*|unser\w*|(?:hab|habe|hatte|bin|war|haben|hatten|waren) (?:ich|wir))\b",
        "es": r"\b(?:mis?|m[ií][oa]s?|nuestr\w+|he|hemos|tengo|tenemos|dije|dej[eé]|puse|me \w+[eé]"
        r"|gast[eé]|compr[eé]|pagu[eé]|guard[eé])\b",
        "fr": r"\b(?:mon|ma|mes|notre|nos|ai-je|j'ai|avons-nous)\b",
        "it": r"\b(?:mi[oae]i?|nostr\w|ho|abbiamo)\b",
        "pt": r"\b(?:meus?|minhas?|noss\w+|tenho|deixei|gastei|comprei|paguei|guardei)\b",
        "nl": r"\b(?:mijn|m'n|ons|onze|(?:heb|had|ben|was) (?:ik|we|wij))\b",
        "ja": "私の|僕の|俺の|うちの|母の|父の|妹の|姉の|兄の|弟の",
        "zh": "我的|我妈|我爸",
    }.items()
}
"""How a question is about the one who asks it."""
WHETHER_KNOWN = re.compile(
    r"^\W*(?:(?:do|can|could) you (?:still )?(?:know|remember|recall|tell me)"
    r"|wei(?:ß|ss)t du(?: noch| eigentlich)?|recuerdas|sabes|te acuerdas(?: de)?|sais-tu|tu sais"
    r"|te souviens-tu|sai"
    r"|ti ricordi|voc[eê] sabe|lembra)\b,? ",
    re.IGNORECASE,
)
"""A question with this in front is answered with yes or no by a small model."""
_ADVICE = re.compile(
    r"\bhow (?:do|to)\b|\bwhat do (?:i|we) do\b|\b(?:should|could|can|would|may|might|kann"
    r"|soll\w*|k[oö]nn\w*|darf|puedo|debo|deber\w*|podr\w+"
    r"|peux|dois|pourrais|posso|devo|dovrei|deveria)\b",
    re.IGNORECASE,
)
"""How a question asks for advice, which is no fact about its owner."""
MAX_QUOTED = 240
"""Characters; a longer text is not quoted again."""
_MAX_QUOTES = 3
NAME_ASKED = re.compile(
    r"\bwho (?:am i (?:talking|speaking|chatting)|are you|is this)\b|\byour name\b|\bwer bist du\b"
    r"|\bwie hei(?:ß|ss)t du\b|\bdein name\b|\bqui[eé]n eres\b|\bc[oó]mo te llamas\b|\bqui es-tu\b"
    r"|\bt'appelles\b|\bchi sei\b|\bti chiami\b|\bquem [eé] voc[eê]\b"
    r"|あなたの名前|あなたは誰|你是谁|你叫什么",
    re.IGNORECASE,
)
