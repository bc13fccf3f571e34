"""The requeue wheel: one pass at a time for a key, none lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from omnigraph_operator.wheel import Wheel


def turn(work: Callable[[str], Awaitable[float | None]], drive: Callable[[Wheel[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        wheel: Wheel[str] = Wheel(work, workers=3, jitter=0.0)
        running = asyncio.create_task(wheel.run())
        await drive(wheel)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 10))


def test_waking_during_a_pass_gives_exactly_one_more() -> None:
    passes: list[str] = []
    overlapping = 0
    busy = 0

    async def work(key: str) -> None:
        nonlocal busy, overlapping
        busy += 1
        overlapping = max(overlapping, busy)
        passes.append(key)
        await asyncio.sleep(0.05)
        busy -= 1

    async def drive(wheel: Wheel[str]) -> None:
        wheel.wake("a")
        await asyncio.sleep(0.02)
        for _ in range(5):
            wheel.wake("a")
        await asyncio.sleep(0.3)

    turn(work, drive)
    assert passes == ["a", "a"]
    assert overlapping == 1


def test_a_pass_asks_for_the_next_and_an_earlier_wake_wins() -> None:
    times: list[float] = []

    async def work(key: str) -> float:
        times.append(asyncio.get_running_loop().time())
        return 0.1 if len(times) == 1 else 60.0

    async def drive(wheel: Wheel[str]) -> None:
        wheel.wake("a")
        await asyncio.sleep(0.3)
        wheel.wake("a", 0.05)
        await asyncio.sleep(0.2)

    turn(work, drive)
    assert len(times) == 3
    assert times[1] - times[0] >= 0.09


def test_keys_do_not_wait_for_each_other() -> None:
    seen: list[str] = []

    async def work(key: str) -> None:
        if key == "slow":
            await asyncio.sleep(0.5)
        seen.append(key)

    async def drive(wheel: Wheel[str]) -> None:
        wheel.wake("slow")
        wheel.wake("quick", 0.05)
        await asyncio.sleep(0.2)
        assert seen == ["quick"]

    turn(work, drive)
