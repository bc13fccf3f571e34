"""The kinds as pydantic models, the one source of their types; `model.crd` makes the CRDs from them."""
