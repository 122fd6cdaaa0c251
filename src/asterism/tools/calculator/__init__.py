"""The tool `calculator`: exact arithmetic with units, dates and percentages; no code is run."""

from asterism.tools.calculator.tool import TOOLS, calculator

__all__ = ["TOOLS", "calculator"]
