"""Ctrl-C at a prompt that has just been shown is never lost."""

import sys

from tests.e2e.command import Terminal

TIMES = 12

# Each prompt is the first of its process: then readline takes longest between showing and waiting.
_ASKS = f"""
import os, signal, sys
from asterism.cli.stop import exit_on
usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
for _ in range({TIMES}):
    if os.fork() == 0:
        import readline
        signal.signal(signal.SIGINT, usual)
        exit_on((signal.SIGTERM,), lambda: None)
        try:
            input("> ")
        except KeyboardInterrupt:
            print("left")
        break
    if os.wait()[1] != 0:
        sys.exit("a process did not end as it should")
"""


def test_ctrl_c_right_after_the_prompt_is_heard():
    """Without a second look, about one in three comes before readline waits and is lost."""
    person = Terminal([sys.executable, "-c", _ASKS], {"TERM": "xterm"}, columns=80)
    for _ in range(TIMES):
        person.expect("> ")
        person.press("\x03")
        assert "left" in person.expect("left")
    assert person.ended() == 0
    person.close()
