"""Write the tables of both grammars beside them: `python hack/grammars.py`, after a change of a `.lark` file."""

from __future__ import annotations

from omnigraph.query.parser import GRAMMAR as QUERY
from omnigraph.schema.parser import GRAMMAR as SCHEMA
from omnigraph.schema.tables import make_tables, to_text

for grammar in (SCHEMA, QUERY):
    grammar.tables_path.write_text(to_text(make_tables(grammar.text, grammar.parser)), encoding="utf-8")
    print(grammar.tables_path)
