"""A question put to the person at the terminal: the exact call, and one key to answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from asterism.cli.asked import read_limits
from asterism.cli.questions import line
from asterism.errors import AsterismError, InvalidInput
from asterism.types.permissions import amount_of, argument_lines, call_lines, read_effects, whole_at

if TYPE_CHECKING:
    from asterism.cli.screen import Screen
    from asterism.types.permissions import ApprovalRecord, Wish

_CHOICES = (
    "y this once · r this recipient · t in this turn · a always up to a limit (a 50, a 3/day) · "
    "n no · d no, say why · e edit first · Enter later"
)
_MOST_LINES = 60
_ATTEMPTS = 10


class Asking:
    """Asks, as a chat does when a call waits."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def about(self, question: ApprovalRecord) -> tuple[bool, dict[str, Any]] | None:
        """Return whether the call may be made and what comes with it; None: it is left waiting."""
        self._show(question)
        try:
            for _ in range(_ATTEMPTS):
                typed = line("Let it happen? ")
                if not typed:
                    break
                answer = self._read(question, typed)
                if answer is not None:
                    return answer
        except KeyboardInterrupt:
            pass
        self._screen.note(f'It waits. "/approve" or "/deny WHY" answers {question.id} later.')
        return None

    def _read(self, question: ApprovalRecord, typed: str) -> tuple[bool, dict[str, Any]] | None:
        word, _, rest = typed.partition(" ")
        match word.lower().removeprefix("/"):
            case "y" | "yes" | "approve":
                if not rest or word.startswith("/"):
                    return True, {"note": rest.strip() or None}
            case "n" | "no" | "deny":
                return False, {"note": rest.strip() or None}
            case "d":
                return False, {"note": rest.strip() or line("Why not? ") or None}
            case "e":
                arguments = self._edited(question)
                return (True, {"arguments": arguments}) if arguments is not None else None
            case "r":
                return True, {"grant": "recipient"}
            case "t":
                return True, {"grant": "turn"}
            case "a":
                wish = self._limited(question, rest)
                return (True, {"grant": wish}) if wish is not None else None
            case _:
                pass
        self._screen.warn(f"Answer with one letter: {_CHOICES}")
        return None

    def _limited(self, question: ApprovalRecord, typed: str) -> Wish | None:
        """Return a grant up to limits; without any, up to the amount that is asked for."""
        from asterism.types.permissions import Extent, Wish

        asked = amount_of(read_effects(question.effects))
        known = 0 < asked < math.inf
        if not typed and not known:
            typed = line("How many a day? ")
            typed = f"{typed}/day" if typed.isdecimal() else typed
        try:
            amount, per_day = read_limits(typed.split())
        except InvalidInput as error:
            self._screen.fail(error.message)
            return None
        if amount is None and per_day is None:
            if not known:
                return None
            amount = asked
        return Wish(Extent.ALWAYS, amount=amount, per_day=per_day)

    def _show(self, question: ApprovalRecord) -> None:
        lines = call_lines(question)
        for one in lines[:_MOST_LINES]:
            self._screen.say(f"  {one}")
        if (left := len(lines) - _MOST_LINES) > 0:
            self._screen.note(f"  {left:,} more lines. {whole_at(question.id)}")
        self._screen.note(f"  {_CHOICES}")

    def _edited(self, question: ApprovalRecord) -> str | None:
        """Let the person change the arguments in their editor; None if that came to nothing."""
        from asterism.cli.editor import Sheet

        try:
            sheet = Sheet(
                question.tool or "call", ".json", "\n".join(argument_lines(question.arguments))
            )
            text = sheet.edit()
        except AsterismError as error:
            self._screen.fail(error.message)
            return None
        sheet.discard()
        return text
