"""The tool `calculator`: exact arithmetic with units, dates and percentages; no code is run."""

from __future__ import annotations

from typing import Annotated

from pydantic.json_schema import SkipJsonSchema

from asterism.tools.builtin.arguments import TEXT, also, null_as
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.permissions import ToolEffect

_ASKED = (
    r"\b(?:how (?:much|many|long|far|fast|big|high|heavy|old)|calculate|compute|work out"
    r"|wie ?viele?|wie (?:lange?|weit|hoch|alt|teuer)|berechne|rechne|cu[aá]nt[oa]s?|calcula"
    r"|combien"
    r"|calcule|quant[oaie]s?|calcola)\b|いくら|いくつ|何[円個人分時]|計算|多少|计算"
    r"|\b(?:is|are|do|does|will|sind|reich\w*)\b(?=[^?]*\b(?:longer|shorter|cheaper|bigger|smaller"
    r"|more|less|enough|l[aä]nger|k[uü]rzer|billiger|gr[oö]sser|gr[oö](?:ß)er|mehr|weniger)\b)"
    r"|\b(?:what|whats|was)\b(?=[^?]*\b(?:costs?|total|sum|price|pay|owe|left|worth|each|average"
    r"|difference|together|per|percent|makes?|kostet|kosten|macht|zusammen|insgesamt)\b)"
)
_SEVERAL = (
    r"(?<![\d:/-])\d[\d.,]*(?![\d:/-])\D+\d|\b(?:al)?together\b|\btotal\b|\bsum of\b|\baverage\b"
    r"|\bsplit\b|\bcheaper\b"
    r"|\bdifference\b|\bhow much (?:more|less)\b|\bzusammen\b|\binsgesamt\b|\bdurchschnitt\b"
    r"|\bbilliger\b|\bteurer\b|\bdifferenz\b|\ben total\b|\bpromedio\b|\bdiferencia\b"
    r"|\bau total\b|\bmoyenne\b|\bdiff[eé]rence\b|\bin totale\b|\bdifferenza\b|\bno total\b"
    r"|\b(?:what(?:'?s| is| will be)|how (?:much|many))\b[^?]{0,40}\b(?:left|remain\w*|in all)\b"
    r"|\bwie ?viel\w*\b[^?]{0,40}\b(?:[uü]brig|bleib\w*)\b"
    r"|\bcu[aá]nt[oa]s?\b[^?]{0,40}\b(?:queda\w*|sobra\w*)\b"
    r"|\bcombien\b[^?]{0,40}\breste\w*\b|\bquant[oaie]\b[^?]{0,40}\b(?:rest\w+|riman\w+|sobra\w*)\b"
    r"|\bdiferen[cç]a\b|残り|还剩|合計|全部で|平均|一共|总共"
)
_SUMS = rf"\A(?s:(?=.*(?:{_ASKED})).*(?:{_SEVERAL}))"
"""A question with two numbers, or with a word for what is calculated from several."""


@tool(repeatable=True, trust=None, compact=_SUMS, effects=ToolEffect("read"), audience="public")
async def calculator(
    ctx: ToolContext,
    expression: Annotated[str, also("expression", "query", "input"), TEXT],
    reset_context: SkipJsonSchema[Annotated[bool, null_as(default=False)]] = False,
) -> str:
    """Exact arithmetic, units, dates, percentages: "5 ft 3 in in cm", "today + 3 weeks"."""
    # Units and patterns take 7 ms to set up, which no start of the program should pay.
    from asterism.tools.calculator.parser import calculate
    from asterism.tools.calculator.quantities import value_text

    del reset_context  # names keep their values within one call
    return value_text(calculate(expression, ctx.now_ms))


TOOLS: list[Tool] = [calculator]
