"""Ctrl-C at a prompt that has just been shown is never lost."""

import sys

import pytest

from tests.e2e.command import Terminal

TIMES = 12

# Each prompt is the first of its process: then readline takes longest between showing and waiting.
_ASKS = """
import os, signal, sys
from asterism.cli.terminal import ask_line, exit_on
usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
for _ in range(TIMES):
    if os.fork() == 0:
        import readline
        signal.signal(signal.SIGINT, usual)
        try:
            ASK
        except KeyboardInterrupt:
            print("left")
        break
    if os.wait()[1] != 0:
        sys.exit("a process did not end as it should")
"""
PROMPTS = {
    "chat": 'exit_on((signal.SIGTERM,), lambda: None); input("> ")',
    "question": 'ask_line("> ")',
}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_ctrl_c_right_after_the_prompt_is_heard(prompt: str):
    """Without a second look, about one in three comes before readline waits and is lost."""
    program = _ASKS.replace("TIMES", str(TIMES)).replace("ASK", PROMPTS[prompt])
    person = Terminal([sys.executable, "-c", program], {"TERM": "xterm"}, columns=80)
    for _ in range(TIMES):
        person.expect("> ")
        person.press("\x03")
        assert "left" in person.expect("left")
    assert person.ended() == 0
    person.close()
