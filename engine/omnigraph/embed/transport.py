"""HTTP with a deadline that holds: requests run on one event loop in a thread of its own, so that a server which sends
a byte a minute is given up as surely as one that sends nothing, and callers with a loop of their own may block.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.embed.settings import EmbedSettings
from omnigraph.records import dataclass

if TYPE_CHECKING:
    import httpx

__all__ = ["MAX_ANSWER_BYTES", "Answer", "Transport", "Unreachable"]

MAX_ANSWER_BYTES = 128 << 20
_RETRIED = frozenset({408, 425, 429})

T = TypeVar("T")


class Unreachable(Exception):
    """No usable answer came in time; the text says what the last attempt met."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def again(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _RETRIED or self.status >= 500


class _Background:
    """The event loop of this process; a forked child makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="omnigraph-embed", daemon=True).start()
            return self._loop


_BACKGROUND = _Background()


class Transport:
    """Connections to one provider. Safe to share between threads."""

    def __init__(self, settings: EmbedSettings) -> None:
        self._settings = settings
        self._client: tuple[int, httpx.AsyncClient] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that posts; blocks. An interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, _BACKGROUND.loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        kept, self._client = self._client, None
        if kept is not None and kept[0] == os.getpid():
            self.run(kept[1].aclose())

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, within: float | None = None) -> Answer:
        """One request, tried again where that may help.

        Args:
            within: seconds this may take with all attempts and waits; None is the settings' deadline.

        Returns:
            The answer, also a refusal that another attempt wouldn't change.

        Raises:
            Unreachable: no such answer in time, or after the last attempt.
        """
        limit = self._settings.deadline_ms / 1000 or None
        limit = within if limit is None else limit if within is None else min(limit, within)
        met = ["no answer"]
        try:
            async with asyncio.timeout(limit) as deadline:
                return await self._attempts(url, headers, body, met, deadline)
        except TimeoutError as error:
            raise Unreachable(f"{met[-1]}; given up after {limit or 0:.1f} s") from error

    async def _attempts(
        self, url: str, headers: Mapping[str, str], body: bytes, met: list[str], deadline: asyncio.Timeout
    ) -> Answer:
        import httpx

        attempts = self._settings.retry_attempts
        for attempt in range(1, attempts + 1):
            answer: Answer | None = None
            try:
                async with asyncio.timeout(self._settings.timeout_ms / 1000):
                    answer = await self._once(url, headers, body)
                if not answer.again:
                    return answer
                met.append(f"status {answer.status}")
            except TimeoutError:
                met.append(f"no whole answer within {self._settings.timeout_ms} ms")
            except httpx.TransportError as error:
                met.append(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            except httpx.InvalidURL as error:
                raise Unreachable(f"no such address: {error}") from error
            except httpx.DecodingError as error:
                met.append(f"an answer that can't be decoded: {error}")
            if attempt == attempts:
                break
            wait = self._wait(attempt, answer)
            ends = deadline.when()
            if ends is not None and asyncio.get_running_loop().time() + wait >= ends:
                raise Unreachable(f"{met[-1]}; the next attempt in {wait:.1f} s would be past the deadline")
            await asyncio.sleep(wait)
        if answer is not None:
            return answer
        raise Unreachable(f"{met[-1]}; {attempts} attempt{'s' if attempts > 1 else ''}")

    async def _once(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        import httpx

        async with self._connected().stream("POST", url, headers=dict(headers), content=body) as response:
            pieces, size = [], 0
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise httpx.DecodingError(f"more than {MAX_ANSWER_BYTES:,} bytes")
                pieces.append(piece)
            return Answer(response.status_code, response.headers, b"".join(pieces))

    def _connected(self) -> httpx.AsyncClient:
        """The client; only ever called on the loop, so there is no race for it."""
        import httpx

        if self._client is None or self._client[0] != os.getpid():
            # No redirects: the key would go wherever they lead. Reading the system's certificates takes its time.
            secure = self._settings.base_url.startswith("https:")
            client = httpx.AsyncClient(timeout=None, follow_redirects=False, verify=secure)
            self._client = (os.getpid(), client)
        return self._client[1]

    def _wait(self, attempt: int, answer: Answer | None) -> float:
        """Seconds before the next attempt: what the server asks for, else doubled each time, and jitter on top."""
        backoff: float = self._settings.retry_backoff_ms / 1000 * 2.0 ** min(attempt - 1, 16)
        asked = _retry_after(answer.headers.get("retry-after", "")) if answer is not None else None
        jitter = backoff * random.random() / 2
        return (asked if asked is not None else backoff) + jitter


def _retry_after(text: str) -> float | None:
    """Seconds of a `Retry-After` header: a number, or a date (RFC 9110, 10.2.3)."""
    text = text.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return min(float(text), 1e6)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, min((at - datetime.now(UTC)).total_seconds(), 1e6))
