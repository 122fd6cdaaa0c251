"""Forgetting: what is forgotten is gone everywhere, with a receipt, and stays so."""

from __future__ import annotations

from asterism.memory.forgetting.execution import Drop, forget, replay
from asterism.memory.forgetting.receipts import Forgetting, Receipt

__all__ = ["Drop", "Forgetting", "Receipt", "forget", "replay"]
