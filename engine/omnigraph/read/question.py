"""`nearest` asked with a text: the vector of the text, from the provider that made the stored ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.query.ir import Prop
from omnigraph.read import limits
from omnigraph.read.datum import Fault
from omnigraph.read.frame import Context

__all__ = ["question_vector"]


def question_vector(ctx: Context, table_key: str, prop: Prop, text: str) -> npt.NDArray[np.float64]:
    """The vector of a question about a property, of length one.

    Args:
        table_key: whose property it is; several are joined by `|`.

    Raises:
        BadRequest: no provider is set up, or its model isn't the one the schema records.
        Unavailable: the provider gives no vector.
    """
    from omnigraph.embed import embedder, how_to_set_up

    what = f"nearest(${prop.var}.{prop.name}, …)"
    if not text.strip():
        raise Fault(f"{what} is asked with a blank text, which is near nothing", code="bad_value")
    made = embedder()
    if made is None:
        raise Fault(
            f"{what} is asked with a text, and {how_to_set_up()}; or give the vector itself as a parameter",
            code="no_embedder",
        )
    models = set()
    for key in table_key.split("|"):
        entity = ctx.catalog.by_table_key.get(key)
        stored = entity.properties.get(prop.name) if entity is not None else None
        if stored is not None and stored.embed is not None and stored.embed.model is not None:
            models.add(stored.embed.model)
    if len(models) > 1:
        raise Fault(f"{what}: the vectors are of several models: {', '.join(sorted(models))}", code="embed_model")
    model = models.pop() if models else None
    return made.query(text, prop.type.dim, model=model, deadline=limits.current().deadline).astype(np.float64)
