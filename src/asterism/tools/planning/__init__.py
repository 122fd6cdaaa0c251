"""Tools for planning a day: tasks with estimates, energy, habits, and where one was.

All they keep is in memory blocks, so that it is gated, undone, forgotten and exported as any other
memory. Agents have them whose list of tools names them.
"""

from __future__ import annotations

from asterism.tools.planning.energy import energy
from asterism.tools.planning.habits import habit
from asterism.tools.planning.recovery import where_was_i
from asterism.tools.planning.tasks import task
from asterism.tools.tool import Tool

TOOLS: list[Tool] = [task, energy, habit, where_was_i]
