"""The graphs that every system gets, as Parquet files. The same seed gives the same files.

`social`: persons with text and vector, who know each other by a power law and work at companies. `study`: the graph of
the public graph-benchmark (persons who follow each other, live in cities and have interests), made anew from its
description, with numbers as keys like there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hack.bench.lines import CITIES, DIMENSIONS, PERSONS

__all__ = ["make_social", "make_study"]

COMPANIES = 1000
WORDS = 20_000


def _keys(prefix: str, width: int, count: int) -> pa.Array[Any]:
    numbers = pc.utf8_lpad(pa.array(np.arange(count)).cast(pa.string()), width=width, padding="0")
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")


def _texts(rng: np.random.Generator, count: int) -> pa.Array[Any]:
    """Texts of 8 to 40 words, which come by a power law."""
    lengths = rng.integers(8, 41, count)
    ranks = np.minimum(rng.zipf(1.3, int(lengths.sum())) - 1, WORDS - 1)
    words = _keys("w", 1, WORDS).take(pa.array(ranks))
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), " ")


def _pairs(
    rng: np.random.Generator, count: int, sources: int, targets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`count` different pairs without self-loops, in random order."""
    key = np.unique(rng.integers(0, sources, len(targets)) * sources + targets)
    key = key[key // sources != key % sources]
    key = rng.permutation(key)[:count]
    return key // sources, key % sources


def make_social(folder: Path, scale: int, *, knows: int = 2_000_000, works: int = 160_000) -> None:
    """persons, companies, knows and works, `.parquet`; 200 k persons and 2 M acquaintances at scale 1."""
    rng = np.random.default_rng(7)
    persons, knows, works = PERSONS * scale, knows * scale, works * scale
    keys, companies = _keys("person-", 8, persons), _keys("company-", 4, COMPANIES)
    vectors = rng.standard_normal((persons, DIMENSIONS), dtype=np.float32)
    table = {
        "key": keys,
        "name": _keys("Name ", 1, persons),
        "age": pa.array(rng.integers(0, 90, persons), pa.int32()),
        "city": _keys("city-", 2, CITIES).take(pa.array(rng.integers(0, CITIES, persons))),
        "bio": _texts(rng, persons),
        "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSIONS),
    }
    pq.write_table(pa.table(table), folder / "persons.parquet")
    pq.write_table(pa.table({"key": companies}), folder / "companies.parquet")
    popular = np.minimum((rng.pareto(1.5, knows * 2) * persons / 50).astype(np.int64), persons - 1)
    src, dst = _pairs(rng, knows, persons, rng.permutation(persons)[popular])
    ends = {"src": keys.take(pa.array(src)), "dst": keys.take(pa.array(dst))}
    pq.write_table(pa.table(ends), folder / "knows.parquet")
    workers = rng.permutation(persons)[:works]
    places = companies.take(pa.array(rng.integers(0, COMPANIES, works)))
    pq.write_table(pa.table({"src": keys.take(pa.array(workers)), "dst": places}), folder / "works.parquet")


_COUNTRIES = ("United States", "United Kingdom", "Canada")
_INTERESTS = (
    "Photography", "Fine Dining", "Tennis", "Hiking", "Chess", "Sailing", "Gardening", "Cooking", "Cycling", "Jazz",
    "Opera", "Pottery", "Poetry", "Running", "Surfing", "Yoga", "Baking", "Climbing", "Astronomy", "Theatre",
    "Painting", "Knitting", "Football", "Cricket", "Swimming", "Skiing", "Golf", "Travel", "History", "Cinema",
    "Robotics", "Birdwatching", "Camping", "Dancing", "Fishing", "Archery", "Fencing", "Rowing", "Judo", "Bowling",
    "Calligraphy",
)  # fmt: skip


def make_study(folder: Path) -> None:
    """100 k persons, 7,117 cities, 273 states, 3 countries, 41 interests; about 2.4 M follow each other."""
    rng = np.random.default_rng(0)
    persons, cities, states = 100_000, 7117, 273
    state_country = np.concatenate([np.arange(3), rng.choice(3, states - 3, p=[0.25, 0.7, 0.05])])
    city_state = np.concatenate([np.arange(states), rng.integers(0, states, cities - states)])
    city_names = _keys("City ", 1, cities).to_pylist()
    city_names[int(np.flatnonzero(state_country[city_state] == 1)[0])] = "London"
    countries = pa.array(_COUNTRIES)
    nodes: dict[str, dict[str, Any]] = {
        "person": {
            "id": np.arange(persons),
            "name": _keys("Person ", 1, persons),
            "gender": pa.array(["female", "male"]).take(pa.array(np.arange(persons) % 2)),
            "age": pa.array(rng.integers(18, 80, persons), pa.int64()),
        },
        "city": {
            "id": np.arange(cities),
            "name": pa.array(city_names),
            "state": _keys("State ", 1, states).take(pa.array(city_state)),
            "country": countries.take(pa.array(state_country[city_state])),
        },
        "state": {
            "id": np.arange(states),
            "name": _keys("State ", 1, states),
            "country": countries.take(pa.array(state_country)),
        },
        "country": {"id": np.arange(3), "name": countries},
        "interest": {"id": np.arange(len(_INTERESTS)), "name": pa.array(_INTERESTS)},
    }
    # Everybody follows some ten; half a percent are followed by 0.5 to 5 % of all.
    src, dst = rng.integers(0, persons, persons * 10), rng.integers(0, persons, persons * 10)
    parts = [src * persons + dst]
    for star in rng.choice(persons, persons * 5 // 1000, replace=False):
        fans = rng.choice(persons, int(rng.integers(persons * 5 // 1000, persons * 5 // 100)), replace=False)
        parts.append(fans * persons + star)
    key = np.unique(np.concatenate(parts))
    key = key[key // persons != key % persons]
    large = np.flatnonzero(np.arange(cities) % 18 == 0)  # few cities are large enough to live in
    home = large[rng.integers(0, len(large), persons)]
    home[: persons // 100] = city_names.index("London")
    count = rng.integers(1, 5, persons)
    fond = np.argsort(rng.random((persons, len(_INTERESTS))), axis=1)[:, :4]
    chosen = np.arange(4) < count[:, None]
    edges = {
        "follows": (key // persons, key % persons),
        "lives_in": (np.arange(persons), home),
        "has_interest": (np.repeat(np.arange(persons), count), fond[chosen]),
        "city_in": (np.arange(cities), city_state),
        "state_in": (np.arange(states), state_country),
    }
    for name, columns in nodes.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    for name, (source, target) in edges.items():
        pq.write_table(pa.table({"src": source, "dst": target}), folder / f"{name}.parquet")
