"""A person's own editor, opened on a text that is kept safe until it is stored."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from asterism.errors import InvalidInput

_USUAL = ("sensible-editor", "editor", "nano", "vim", "vi", "notepad")


class Sheet:
    """A file with a text that a person edits; it goes when it is not needed any more."""

    def __init__(self, name: str, suffix: str, text: str) -> None:
        self._command = editor()
        safe = "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in name)[:40]
        self.file = Path(tempfile.mkdtemp(prefix="asterism-")) / f"{safe}{suffix}"
        # Editors end the last line; whether the text itself did is remembered.
        self._ended = text.endswith("\n")
        self.file.write_text(text if self._ended or not text else f"{text}\n", encoding="utf-8")

    def edit(self) -> str:
        """Open the editor, wait until it is closed, and return what the text is then."""
        command = [*self._command, str(self.file)]
        try:
            code = subprocess.call(command)  # noqa: S603 - the person's own choice
        except OSError as error:
            self.discard()
            raise InvalidInput(
                f"The editor {command[0]!r} cannot be started ({error.strerror}). Set EDITOR to "
                "one that can, or use --text, --file or --append. Nothing was changed."
            ) from None
        if code != 0:
            raise InvalidInput(
                f"The editor {command[0]!r} ended with code {code}, so nothing was changed. "
                f"What it left is in {self.file}."
            )
        try:
            text = self.file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(
                f"{self.file} is no UTF-8 text after the editor, so nothing was changed."
            ) from None
        return text if self._ended else text.removesuffix("\n")

    def discard(self) -> None:
        """Remove the file."""
        shutil.rmtree(self.file.parent, ignore_errors=True)


def editor() -> list[str]:
    """Return the command of the person's editor; raise `InvalidInput` if there is none."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if chosen:
        try:
            words = shlex.split(chosen)
        except ValueError:
            words = []
        if words:
            return words
        raise InvalidInput(
            f"VISUAL or EDITOR is {chosen!r}, which names no command. Set it to one such as nano. "
            "Nothing was changed."
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput(
            "There is no terminal to open an editor at. Set EDITOR, or use --text, --file or "
            "--append. Nothing was changed."
        )
    for name in _USUAL:
        if found := shutil.which(name):
            return [found]
    raise InvalidInput(
        "No editor was found. Set EDITOR to one such as nano, or use --text, --file or --append. "
        "Nothing was changed."
    )
