"""Ctrl-C at a prompt that has just been shown is never lost."""

import sys

from tests.e2e.command import Terminal

_ASKS = """
import readline, signal
from asterism.cli.stop import exit_on
exit_on((signal.SIGTERM,), lambda: None)
try:
    input("> ")
except KeyboardInterrupt:
    print("left")
"""


def test_ctrl_c_right_after_the_prompt_is_heard():
    """Without a second look, about one in three comes before readline waits and is lost."""
    for _ in range(12):
        person = Terminal([sys.executable, "-c", _ASKS], {"TERM": "xterm"}, columns=80)
        person.expect("> ")
        person.press("\x03")
        assert person.ended() == 0
        assert "left" in person.shown
        person.close()
