"""The errors of one query or mutation, told in its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from omnigraph.errors import BadRequest, Internal
from omnigraph.read.datum import Fault

__all__ = ["told"]

T = TypeVar("T")

_FULL = ("offset overflow", "binary array capacity", "array too large", "cannot contain more than")
"""What Arrow says of an array that would be too long."""


def told(query: str, work: Callable[[], T]) -> T:
    """A run whose errors name the query.

    Raises:
        BadRequest: an expression has no value, or the run takes more than fits (`query_too_large`).
        Internal: Arrow fails at anything else.
    """
    try:
        return work()
    except Fault as fault:
        raise fault.of(query) from None
    except MemoryError as error:  # numpy's and Arrow's among them
        raise BadRequest(
            f"query `{query}` needs more memory than there is ({error}): narrow the match or the where, or return less",
            code="query_too_large",
        ) from error
    except pa.ArrowException as error:
        if not isinstance(error, pa.ArrowCapacityError) and not any(words in str(error) for words in _FULL):
            raise Internal(f"query `{query}`: Arrow says {error}") from error
        raise BadRequest(
            f"query `{query}` has a step whose texts take more than 2 GiB in one column, which Arrow can't hold "
            f"({error}): narrow the match or the where, return properties instead of whole entities, or set a limit",
            code="query_too_large",
        ) from error
