"""Tasks that go on for ever end, also where a cancellation is lost."""

import asyncio

from asterism.store.database import end_tasks


async def test_a_task_that_loses_a_cancellation_is_cancelled_again():
    """As `asyncio.wait_for` of Python 3.11 does when a result comes at the same time."""
    lost: list[str] = []

    async def listen() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.append("once")
        await asyncio.Event().wait()

    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    tasks = [asyncio.create_task(listen()), asyncio.create_task(fail())]
    await asyncio.sleep(0)
    async with asyncio.timeout(120):
        await end_tasks(tasks, again=0.01)
    assert lost == ["once"]
    assert all(task.done() for task in tasks)


async def test_there_may_be_nothing_to_end():
    await end_tasks([])
