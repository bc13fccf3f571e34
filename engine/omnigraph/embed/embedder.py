"""`Embedder`: texts in, vectors out. Caches first, then the provider in batches, and every answer checked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from omnigraph.embed.cache import FileCache, MemoryCache, content_key
from omnigraph.embed.mock import mock_vectors
from omnigraph.embed.providers import Ask, Role, parse, refuses_key, said, tells_roles
from omnigraph.embed.settings import EmbedSettings
from omnigraph.embed.transport import Answer, Transport, Unreachable
from omnigraph.embed.vectors import BadVector, Matrix
from omnigraph.errors import BadRequest, Unavailable

__all__ = ["Embedder", "TextRefused", "embedder"]

_TOO_MUCH = frozenset({400, 413, 422})  # statuses that one text of a batch may be the reason for
_HARMLESS = "hello"  # a text that no provider has a reason to refuse


class TextRefused(BadRequest):
    """The provider refuses one text, however often it is asked; `index` is its place among the texts given."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message, code="text_refused", details={"index": index})
        self.index = index


class Embedder:
    """Makes vectors with one provider. Safe to share between threads.

    Args:
        settings: which provider, and how.
    """

    def __init__(self, settings: EmbedSettings) -> None:
        self.settings = settings
        self._transport = Transport(settings)
        self._memory = MemoryCache()
        self._file = FileCache(settings.cache, settings.cache_bytes) if settings.cache else None
        self._sized: dict[tuple[str, int], bool] = {}  # whether the server lets a request name the dimension

    def model(self, recorded: str | None = None) -> str:
        """The model that is asked.

        Args:
            recorded: the one a schema records beside the property, if it does.

        Raises:
            BadRequest: another one is set; vectors of two models can't be compared.
        """
        given = self.settings.model
        if recorded is not None and given is not None and given != recorded:
            raise BadRequest(
                f"the vectors are of the model {recorded!r} (@embed), and OMNIGRAPH_EMBED_MODEL is {given!r}: vectors "
                "of two models can't be compared; set it to the recorded one, or leave it unset",
                code="embed_model",
                details={"recorded": recorded, "configured": given},
            )
        return given or recorded or self.settings.default_model

    def documents(
        self, texts: Sequence[str], dim: int, *, model: str | None = None, progress: Callable[[int], None] | None = None
    ) -> Matrix:
        """Vectors of texts that are stored.

        Args:
            texts: none of them blank.
            dim: numbers of a vector.
            model: the model the schema records.
            progress: told how many texts of these have their vector.

        Returns:
            float32 of shape (n, dim), each of length one (L2).

        Raises:
            TextRefused: the provider refuses one of them.
            BadRequest: the model isn't the one that is set.
            Unavailable: the provider doesn't answer, refuses or answers wrongly; `retryable` says if to try again.
        """
        return self._vectors(texts, dim, "document", model, None, progress)

    def query(self, text: str, dim: int, *, model: str | None = None, deadline: float | None = None) -> Matrix:
        """The vector of a question, float32 of shape (dim,); arguments and errors as for `documents`.

        Args:
            deadline: `time.monotonic()` at which the question is given up.
        """
        found: Matrix = self._vectors([text], dim, "query", model, deadline, None)[0]
        return found

    def close(self) -> None:
        self._transport.close()

    # ---- the way of a text ----

    def _vectors(
        self,
        texts: Sequence[str],
        dim: int,
        role: Role,
        recorded: str | None,
        deadline: float | None,
        progress: Callable[[int], None] | None,
    ) -> Matrix:
        model = self.model(recorded)
        if self.settings.provider == "mock":
            return mock_vectors(texts, dim)
        kept_role = role if tells_roles(self.settings) else "document"
        place = (self.settings.provider, self.settings.base_url, model, dim, kept_role)
        keys = [content_key(1, *place, text) for text in texts]
        where: dict[bytes, int] = {}  # each content once, at its first text
        for i, key in enumerate(keys):
            where.setdefault(key, i)
        known = self._cached(list(where), dim)
        wanted = [(key, i) for key, i in where.items() if key not in known]
        done = [len(texts) - len(wanted)]

        def keep(part: Sequence[tuple[bytes, int]], rows: Matrix) -> None:
            fresh = {key: rows[n] for n, (key, _) in enumerate(part)}
            known.update(fresh)
            self._memory.put(fresh)
            if self._file is not None:
                self._file.put(fresh)
            done[0] += len(part)
            if progress is not None:
                progress(done[0])

        if wanted:
            self._transport.run(self._all(texts, wanted, dim, model, role, deadline, keep))
        out = np.empty((len(texts), dim), dtype=np.float32)
        for i, key in enumerate(keys):
            out[i] = known[key]
        return out

    def _cached(self, keys: list[bytes], dim: int) -> dict[bytes, npt.NDArray[np.float32]]:
        known = self._memory.get(keys)
        missing = [key for key in keys if key not in known]
        if missing and self._file is not None:
            stored = self._file.get(missing, dim)
            self._memory.put(stored)
            known |= stored
        return known

    async def _all(
        self,
        texts: Sequence[str],
        wanted: Sequence[tuple[bytes, int]],
        dim: int,
        model: str,
        role: Role,
        deadline: float | None,
        keep: Callable[[Sequence[tuple[bytes, int]], Matrix], None],
    ) -> None:
        """Every batch, some at a time; the first failure ends the others."""
        gate = asyncio.Semaphore(self.settings.concurrency)

        async def one(part: Sequence[tuple[bytes, int]]) -> None:
            async with gate:
                rows = await self._batch(texts, [i for _, i in part], dim, model, role, deadline)
                await asyncio.to_thread(keep, part, rows)

        try:
            async with asyncio.TaskGroup() as group:
                for part in self._parts(texts, wanted):
                    group.create_task(one(part))
        except BaseExceptionGroup as several:
            first: BaseException = several
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None

    def _parts(
        self, texts: Sequence[str], wanted: Sequence[tuple[bytes, int]]
    ) -> Iterator[Sequence[tuple[bytes, int]]]:
        part: list[tuple[bytes, int]] = []
        size = 0
        for key, i in wanted:
            if part and (len(part) == self.settings.batch or size + len(texts[i]) > self.settings.batch_chars):
                yield part
                part, size = [], 0
            part.append((key, i))
            size += len(texts[i])
        if part:
            yield part

    async def _batch(
        self, texts: Sequence[str], at: Sequence[int], dim: int, model: str, role: Role, deadline: float | None
    ) -> Matrix:
        """The vectors of texts[at]. A refused batch is halved until the text that is the reason stands alone."""
        ask = Ask([texts[i] for i in at], dim, model, role, self._sized.get((model, dim), True))
        answer = await self._post(ask, deadline)
        if self._may_be_a_text(answer) and self._sized.get((model, dim)) is not ask.sized:
            ask, answer = await self._settled(ask, answer, deadline)
        if answer.status == 200:
            return self._read(ask, answer)
        if not self._may_be_a_text(answer):
            raise self._refused(model, answer)
        if len(at) > 1:
            half = len(at) // 2
            parts = [await self._batch(texts, part, dim, model, role, deadline) for part in (at[:half], at[half:])]
            return np.concatenate(parts)
        raise TextRefused(
            f"{self.settings.place} refuses a text of {len(texts[at[0]]):,} characters with status "
            f"{answer.status} (model {model!r}): {said(self.settings, answer.body)}",
            at[0],
        )

    async def _settled(self, ask: Ask, answer: Answer, deadline: float | None) -> tuple[Ask, Answer]:
        """A refused request and its answer, once the provider is known to answer some text asked for in this way.

        A server of one fixed dimension refuses to be told any. One that is told a wrong model or key may refuse every
        text with the status of a text too long: only what answers a harmless one can mean the texts.

        Raises:
            Unavailable: the harmless text is refused as well.
        """
        plain = replace(ask, sized=False)
        second = await self._post(plain, deadline)
        if second.status == 200 or (ask.model, ask.dim) in self._sized:
            return plain, second
        for request, met in ((ask, answer), (plain, second)):
            probe = replace(request, texts=[_HARMLESS])
            harmless = await self._post(probe, deadline)
            if harmless.status == 200:
                self._read(probe, harmless)
                return request, met
            if not self._may_be_a_text(harmless):
                break
        raise self._refused(ask.model, harmless)

    def _read(self, ask: Ask, answer: Answer) -> Matrix:
        """The vectors of an answer; from then on the provider is known to give some when asked in this way."""
        try:
            found = parse(self.settings, ask, answer.body)
        except BadVector as error:
            raise self._bad_answer(ask.model, str(error)) from None
        self._sized.setdefault((ask.model, ask.dim), ask.sized)
        return found

    def _may_be_a_text(self, answer: Answer) -> bool:
        """Whether a text may be what a refusal is about."""
        return answer.status in _TOO_MUCH and not refuses_key(self.settings, answer.body)

    async def _post(self, ask: Ask, deadline: float | None) -> Answer:
        s = self.settings
        within = None if deadline is None else max(0.001, deadline - time.monotonic())
        try:
            return await self._transport.post(ask.url(s), ask.headers(s), ask.body(s), within=within)
        except Unreachable as error:
            reason = str(error)
            if s.api_key:
                reason = reason.replace(s.api_key.reveal(), "***")
            raise Unavailable(
                f"{s.place} gives no vectors (model {ask.model!r}): {reason}. Try again, or raise "
                "OMNIGRAPH_EMBED_DEADLINE_MS",
                code="embed_unavailable",
                details={"provider": s.provider, "model": ask.model},
            ) from None

    def _bad_answer(self, model: str, why: str) -> Unavailable:
        error = Unavailable(
            f"{self.settings.place} answered wrongly (model {model!r}): {why}; nothing of it was used. Check "
            "OMNIGRAPH_EMBED_MODEL and OMNIGRAPH_EMBED_BASE_URL",
            code="embed_bad_answer",
            details={"provider": self.settings.provider, "model": model},
        )
        error.retryable = False
        return error

    def _refused(self, model: str, answer: Answer) -> Unavailable:
        s = self.settings
        key = "the key is missing or wrong"
        settings = "a harmless text is refused as well: check OMNIGRAPH_EMBED_MODEL, the key and the property's length"
        hints = dict.fromkeys(_TOO_MUCH, settings) | {
            401: key,
            403: "the key may not use this model",
            404: "there is no such model or URL: check OMNIGRAPH_EMBED_MODEL and OMNIGRAPH_EMBED_BASE_URL",
        }
        hint = hints.get(answer.status, "a redirect, which isn't followed" if 300 <= answer.status < 400 else "")
        if refuses_key(s, answer.body):
            hint = key
        text = "; ".join(part for part in (hint, said(s, answer.body)) if part)
        error = Unavailable(
            f"{s.place} refuses with status {answer.status} (model {model!r}): {text or 'without a word'}",
            code="embed_unavailable" if answer.again else "embed_refused",
            details={"provider": s.provider, "model": model, "status": answer.status},
        )
        error.retryable = answer.again
        return error


_made: dict[EmbedSettings, Embedder] = {}
_lock = threading.Lock()


def embedder() -> Embedder | None:
    """The embedder the environment sets up, one per process and settings; None where none is set up.

    Raises:
        BadRequest: a setting can't be read.
    """
    settings = EmbedSettings.from_env()
    if settings is None:
        return None
    with _lock:
        found = _made.get(settings)
        if found is None:
            found = _made[settings] = Embedder(settings)
        return found
