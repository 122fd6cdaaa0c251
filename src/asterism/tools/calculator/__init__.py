"""The tool `calculator`: exact arithmetic with units, dates and percentages; no code is run."""

from __future__ import annotations

from typing import Annotated

from pydantic.json_schema import SkipJsonSchema

from asterism.tools.builtin.arguments import TEXT, also, null_as
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.permissions import ToolEffect

_ASKED = (
    r"[?\uff1f]|\b(?:how|what|whats|calculate|compute|work out|was|wie ?viele?|berechne|rechne"
    r"|cu[aá]nt[oa]s?|calcula|combien|calcule|quant[oaie]|calcola)\b|いくら|いくつ|計算|多少|计算"
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
