"""What is measured: each line's question in every language, its parameters, and the aim.

A line is answered by all systems before it is timed, and the answers must be equal. Parameters change from call to call
and are the same for everyone. An aim is a ratio to the fastest peer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["CITIES", "DIMENSIONS", "PERSONS", "Line", "person_key", "social_lines", "study_lines"]

PERSONS = 200_000  # at scale 1
DIMENSIONS = 64
CITIES = 100


def person_key(number: int) -> str:
    return f"person-{number:08d}"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Args:
        name: short, for `--only`.
        title: what it is.
        aim: the largest ratio to the fastest peer that meets the aim; None where there is none.
        gq, cypher, sql: the question; lancedb has its own code for the lines it can do.
        params: one set a call, in turn.
        check: how answers are compared: row by row (unordered unless `ordered`), or, for searches whose scores may
            differ in the last digit, by the share of common rows.
        rows: whether the answer is wanted as Python values; else as an Arrow table.
    """

    name: str
    title: str
    aim: float | None
    gq: str
    cypher: str | None = None
    sql: str | None = None
    lance: str | None = None
    params: Sequence[dict[str, Any]] = field(default_factory=lambda: [{}])
    ordered: bool = False
    check: Literal["equal", "overlap"] = "equal"
    rows: bool = False


def social_lines(scale: int) -> list[Line]:
    """The lines over persons who know each other."""
    rng = random.Random(3)
    some = [{"k": person_key(rng.randrange(PERSONS * scale))} for _ in range(50)]
    cities = [{"c": f"city-{number:02d}"} for number in rng.sample(range(CITIES), 20)]
    near = [{**city, "v": [rng.gauss(0, 1) for _ in range(DIMENSIONS)]} for city in cities]
    words = [f"w{rng.randrange(20, 400)} w{rng.randrange(20, 400)}" for _ in range(20)]
    texts = [{"q": text} for text in words]
    filtered = [{"q": text, "a": 60} for text in words]
    start = "match { $p: Person { key: $k }"
    return [
        Line(
            "point",
            "point look-up by key, 2 properties",
            0.6,
            f"query q($k: String) {{ {start} }} return {{ $p.name, $p.age }} }}",
            "match (p:Person {key: $k}) return p.name, p.age",
            "select name, age from person where key = $k",
            params=some,
        ),
        Line(
            "hop1",
            "1 hop, 2 properties",
            0.4,
            f"query q($k: String) {{ {start} $p knows $f }} return {{ $f.name, $f.age }} }}",
            "match (p:Person {key: $k})-[:Knows]->(f:Person) return f.name, f.age",
            "select f.name, f.age from knows e join person f on f.key = e.dst where e.src = $k",
            params=some,
        ),
        Line(
            "hop2",
            "2 hops, count distinct",
            0.4,
            f"query q($k: String) {{ {start} $p knows $a $a knows $b }} return {{ count(distinct $b) as n }} }}",
            "match (:Person {key: $k})-[:Knows]->(:Person)-[:Knows]->(b:Person) return count(distinct b.key)",
            "select count(distinct b.dst) from knows a join knows b on b.src = a.dst where a.src = $k",
            params=some,
        ),
        Line(
            "hop3",
            "3 hops, count distinct",
            0.4,
            f"query q($k: String) {{ {start} $p knows $a $a knows $b $b knows $c }} "
            "return { count(distinct $c) as n } }",
            "match (:Person {key: $k})-[:Knows]->(:Person)-[:Knows]->(:Person)-[:Knows]->(c:Person) "
            "return count(distinct c.key)",
            "select count(distinct c.dst) from knows a join knows b on b.src = a.dst join knows c on c.src = b.dst "
            "where a.src = $k",
            params=some,
        ),
        Line(
            "reach",
            "1..3 hops, reachable",
            0.2,
            f"query q($k: String) {{ {start} $p knows{{1,3}} $f }} return {{ count($f) as n }} }}",
            "match (p:Person {key: $k})-[:Knows* shortest 1..3]->(f:Person) return count(f)",
            "with one as materialized (select dst from knows where src = $k), "
            "two as materialized (select distinct e.dst from one o join knows e on e.src = o.dst), "
            "three as (select distinct e.dst from two t join knows e on e.src = t.dst) "
            "select count(*) from (select dst from one union select dst from two union select dst from three) "
            "where dst <> $k",
            params=some,
        ),
        Line(
            "group",
            "filter and group, 100 groups",
            1.0,
            "query q($a: I32) { match { $p: Person $p.age > $a } return { $p.city as city, count($p) as n } }",
            "match (p:Person) where p.age > $a return p.city, count(*)",
            "select city, count(*) from person where age > $a group by city",
            params=[{"a": a} for a in (20, 30, 40)],
        ),
        Line(
            "fan",
            "2 hops from 2,000 persons, distinct",
            0.15,
            "query q($c: String) { match { $p: Person { city: $c } $p knows $a $a knows $b } "
            "return { count(distinct $b) as n } }",
            "match (p:Person {city: $c})-[:Knows]->(:Person)-[:Knows]->(b:Person) return count(distinct b.key)",
            "select count(distinct b.dst) from person p join knows a on a.src = p.key join knows b on b.src = a.dst "
            "where p.city = $c",
            params=cities,
        ),
        Line(
            "anti",
            "anti-join",
            0.15,
            "query q() { match { $p: Person not { $p worksAt $c } } return { count($p) as n } }",
            "match (p:Person) where not exists { match (p)-[:WorksAt]->(:Company) } return count(*)",
            "select count(*) from person p where not exists (select 1 from works w where w.src = p.key)",
        ),
        Line(
            "knn",
            "kNN, k = 10, behind a filter (1 of 100)",
            0.1,
            "query q($c: String, $v: Vector(64)) { match { $p: Person { city: $c } } return { $p.key } "
            "order { nearest($p.vec, $v) } limit 10 }",
            "match (p:Person) where p.city = $c return p.key "
            'order by array_cosine_similarity(p.vec, cast($v, "float[64]")) desc limit 10',
            "select key from person where city = $c order by array_cosine_distance(vec, $v::float[64]) limit 10",
            "knn",
            params=near,
            ordered=True,
        ),
        Line(
            "bm25",
            "bm25, top 10 of all texts",
            1.0,
            "query q($q: String) { match { $p: Person } return { $p.key } order { bm25($p.bio, $q) } limit 10 }",
            None,
            "select key from (select key, fts_main_person.match_bm25(key, $q) as score from person) "
            "where score is not null order by score desc limit 10",
            "bm25",
            params=texts,
            check="overlap",
        ),
        Line(
            "bm25f",
            "bm25, top 10 behind a filter (1 of 3)",
            1.0,
            "query q($q: String, $a: I32) { match { $p: Person $p.age >= $a } return { $p.key } "
            "order { bm25($p.bio, $q) } limit 10 }",
            None,
            "select key from (select key, fts_main_person.match_bm25(key, $q) as score from person where age >= $a) "
            "where score is not null order by score desc limit 10",
            "bm25f",
            params=filtered,
            check="overlap",
        ),
        Line(
            "pointpy",
            "point look-up, as Python values",
            None,
            f"query q($k: String) {{ {start} }} return {{ $p.name, $p.age }} }}",
            "match (p:Person {key: $k}) return p.name, p.age",
            "select name, age from person where key = $k",
            params=some,
            rows=True,
        ),
        Line(
            "top",
            "top 10 by age, ties by key",
            None,
            "query q() { match { $p: Person } return { $p.key, $p.age } order { $p.age desc, $p.key } limit 10 }",
            "match (p:Person) return p.key, p.age order by p.age desc, p.key limit 10",
            "select key, age from person order by age desc, key limit 10",
            ordered=True,
        ),
        Line(
            "optional",
            "optional match, counted",
            None,
            "query q() { match { $p: Person optional { $p worksAt $c } } "
            "return { count($p) as n, count($c.key) as k } }",
            "match (p:Person) optional match (p)-[:WorksAt]->(c:Company) return count(*), count(c.key)",
            "select count(*), count(w.dst) from person p left join works w on w.src = p.key",
        ),
        Line(
            "rows",
            "160,000 rows of two properties",
            None,
            "query q() { match { $p: Person $p worksAt $c } return { $p.name, $c.key } }",
            "match (p:Person)-[:WorksAt]->(c:Company) return p.name, c.key",
            "select p.name, w.dst from person p join works w on w.src = p.key",
        ),
    ]


def study_lines() -> list[Line]:
    """The nine questions of the public graph-benchmark."""
    return [
        Line(
            "q1",
            "the 3 most followed persons",
            None,
            "query q() { match { $f: Person $f follows $p } return { $p.num, $p.name, count($f) as n } "
            "order { n desc, $p.num } limit 3 }",
            "match (f:Person)-[:Follows]->(p:Person) return p.id, p.name, count(f.id) as n "
            "order by n desc, p.id limit 3",
            "select p.id, p.name, count(*) n from follows f join person p on p.id = f.dst group by p.id, p.name "
            "order by n desc, p.id limit 3",
            ordered=True,
        ),
        Line(
            "q2",
            "the city of the most followed person",
            None,
            "query q() { match { $f: Person $f follows $p $p livesIn $c } "
            "return { $p.name, $c.name as city, $c.state, $c.country, count($f) as n } order { n desc } limit 1 }",
            "match (f:Person)-[:Follows]->(p:Person) with p, count(f.id) as n order by n desc limit 1 "
            "match (p)-[:LivesIn]->(c:City) return p.name, c.name, c.state, c.country, n",
            "select p.name, c.name, c.state, c.country, t.n from (select dst, count(*) n from follows group by dst "
            "order by n desc limit 1) t join person p on p.id = t.dst join lives_in l on l.src = p.id "
            "join city c on c.id = l.dst",
        ),
        Line(
            "q3",
            "the 5 cities of a country with the lowest average age",
            None,
            "query q($x: String) { match { $p: Person $p livesIn $c $c cityIn $s $s stateIn $o "
            "$o: Country { name: $x } } return { $c.name, avg($p.age) as age } order { age, $c.name } limit 5 }",
            "match (p:Person)-[:LivesIn]->(c:City)-[:CityIn]->(:State)-[:StateIn]->(o:Country) where o.name = $x "
            "return c.name, avg(p.age) as age order by age, c.name limit 5",
            "select c.name, avg(p.age) age from person p join lives_in l on l.src = p.id join city c on c.id = l.dst "
            "join city_in i on i.src = c.id join state_in s on s.src = i.dst join country o on o.id = s.dst "
            "where o.name = $x group by c.id, c.name order by age, c.name limit 5",
            params=[{"x": "United States"}],
            ordered=True,
        ),
        Line(
            "q4",
            "persons between 30 and 40 in each country",
            None,
            "query q($a: I64, $b: I64) { match { $p: Person $p.age >= $a $p.age <= $b $p livesIn $c $c cityIn $s "
            "$s stateIn $o } return { $o.name, count($p) as n } order { n desc, $o.name } limit 3 }",
            "match (p:Person)-[:LivesIn]->(:City)-[:CityIn]->(:State)-[:StateIn]->(o:Country) "
            "where p.age >= $a and p.age <= $b return o.name, count(*) as n order by n desc, o.name limit 3",
            "select o.name, count(*) n from person p join lives_in l on l.src = p.id join city_in i on i.src = l.dst "
            "join state_in s on s.src = i.dst join country o on o.id = s.dst where p.age >= $a and p.age <= $b "
            "group by o.name order by n desc, o.name limit 3",
            params=[{"a": 30, "b": 40}],
            ordered=True,
        ),
        Line(
            "q5",
            "men of London who like fine dining",
            None,
            "query q($g: String, $c: String, $o: String, $i: String) { match { $p: Person $p hasInterest $t "
            "lower($t.name) = lower($i) lower($p.gender) = lower($g) $p livesIn $h $h.name = $c $h.country = $o } "
            "return { count($p) as n } }",
            "match (p:Person)-[:HasInterest]->(i:Interest) where lower(i.name) = lower($i) and "
            "lower(p.gender) = lower($g) with p, i match (p)-[:LivesIn]->(c:City) "
            "where c.name = $c and c.country = $o return count(p)",
            "select count(*) from person p join has_interest h on h.src = p.id join interest i on i.id = h.dst "
            "join lives_in l on l.src = p.id join city c on c.id = l.dst where lower(i.name) = lower($i) and "
            "lower(p.gender) = lower($g) and c.name = $c and c.country = $o",
            params=[{"g": "male", "c": "London", "o": "United Kingdom", "i": "fine dining"}],
        ),
        Line(
            "q6",
            "the 5 cities with most women who like tennis",
            None,
            "query q($g: String, $i: String) { match { $p: Person $p hasInterest $t lower($t.name) = lower($i) "
            "lower($p.gender) = lower($g) $p livesIn $c } "
            "return { count($p) as n, $c.name, $c.country } order { n desc, $c.name } limit 5 }",
            "match (p:Person)-[:HasInterest]->(t:Interest) where lower(t.name) = lower($i) and "
            "lower(p.gender) = lower($g) with p match (p)-[:LivesIn]->(c:City) "
            "return count(p.id) as n, c.name, c.country order by n desc, c.name limit 5",
            "select count(*) n, c.name, c.country from person p join has_interest h on h.src = p.id "
            "join interest i on i.id = h.dst join lives_in l on l.src = p.id join city c on c.id = l.dst "
            "where lower(i.name) = lower($i) and lower(p.gender) = lower($g) group by c.id, c.name, c.country "
            "order by n desc, c.name limit 5",
            params=[{"g": "female", "i": "tennis"}],
            ordered=True,
        ),
        Line(
            "q7",
            "the state with most persons of 23 to 30 who like photography",
            None,
            "query q($x: String, $a: I64, $b: I64, $i: String) { match { $p: Person $p.age >= $a $p.age <= $b "
            "$p livesIn $c $c cityIn $s $s.country = $x $p hasInterest $t lower($t.name) = lower($i) } "
            "return { count($p) as n, $s.name, $s.country } order { n desc, $s.name } limit 1 }",
            "match (p:Person)-[:LivesIn]->(:City)-[:CityIn]->(s:State) where p.age >= $a and p.age <= $b and "
            "s.country = $x with p, s match (p)-[:HasInterest]->(t:Interest) where lower(t.name) = lower($i) "
            "return count(p.id) as n, s.name, s.country order by n desc, s.name limit 1",
            "select count(*) n, s.name, s.country from person p join lives_in l on l.src = p.id "
            "join city_in c on c.src = l.dst join state s on s.id = c.dst join has_interest h on h.src = p.id "
            "join interest i on i.id = h.dst where p.age >= $a and p.age <= $b and s.country = $x and "
            "lower(i.name) = lower($i) group by s.id, s.name, s.country order by n desc, s.name limit 1",
            params=[{"x": "United States", "a": 23, "b": 30, "i": "photography"}],
            ordered=True,
        ),
        Line(
            "q8",
            "paths of two steps",
            None,
            "query q() { match { $a: Person $a follows $b $b follows $c } return { count($a) as n } }",
            "match (:Person)-[:Follows]->(:Person)-[:Follows]->(:Person) return count(*)",
            "select count(*) from follows a join follows b on b.src = a.dst",
        ),
        Line(
            "q9",
            "paths of two steps through the young to the older",
            None,
            "query q($a: I64, $b: I64) { match { $x: Person $x follows $y $y.age < $a $y follows $z $z.age > $b } "
            "return { count($x) as n } }",
            "match (:Person)-[:Follows]->(y:Person)-[:Follows]->(z:Person) where y.age < $a and z.age > $b "
            "return count(*)",
            "select count(*) from follows a join person y on y.id = a.dst join follows b on b.src = y.id "
            "join person z on z.id = b.dst where y.age < $a and z.age > $b",
            params=[{"a": 50, "b": 25}],
        ),
    ]
