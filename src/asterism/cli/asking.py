"""A question put to the person at the terminal: the exact call, and one key to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asterism.cli.asked import call_lines
from asterism.cli.questions import line
from asterism.errors import AsterismError
from asterism.types.approvals import deeds_in_words, pretty

if TYPE_CHECKING:
    from asterism.cli.screen import Screen
    from asterism.types.approvals import Approval

_CHOICES = "y yes · n no · d no, say why · e edit first · a always like this · Enter later"
_MOST_LINES = 60
_ATTEMPTS = 10


class Asking:
    """Asks, as a chat does when a call waits."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def about(self, question: Approval) -> tuple[bool, dict[str, Any]] | None:
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

    def _read(self, question: Approval, typed: str) -> tuple[bool, dict[str, Any]] | None:
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
            case "a":
                return True, {"grant": "scope"}
            case _:
                pass
        self._screen.warn(f"Answer with one letter: {_CHOICES}")
        return None

    def _show(self, question: Approval) -> None:
        lines = call_lines(question)
        for one in lines[:_MOST_LINES]:
            self._screen.say(f"  {one}")
        if len(lines) > _MOST_LINES:
            self._screen.note(f'  … "asterism approval show {question.id}" shows all of it.')
        if does := deeds_in_words(question):
            self._screen.note(f"  It would {does}.")
        self._screen.note(f"  {_CHOICES}")

    def _edited(self, question: Approval) -> str | None:
        """Let the person change the arguments in their editor; None if that came to nothing."""
        from asterism.cli.editor import Sheet

        try:
            sheet = Sheet(question.tool or "call", ".json", pretty(question.arguments))
            text = sheet.edit()
        except AsterismError as error:
            self._screen.fail(error.message)
            return None
        sheet.discard()
        return text
