"""What every kind shares: the base model, references to ConfigMaps and Secrets, conditions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

__all__ = [
    "GROUP",
    "VERSION",
    "BranchName",
    "Condition",
    "ConfigMapRef",
    "KeyRef",
    "Model",
    "Name",
    "ObjectName",
    "OpenObject",
    "Quantity",
    "Resources",
    "SecretRef",
    "Text",
    "exactly_one_of",
    "rule",
]

GROUP = "omnigraph.io"
VERSION = "v1alpha1"


class Model(BaseModel):
    """Frozen, camelCase outside, snake_case inside. Unknown fields are the validator's business, not the reader's."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


def rule(expression: str, message: str) -> dict[str, str]:
    """One CEL rule of a CRD (`x-kubernetes-validations`)."""
    return {"rule": expression, "message": message}


def exactly_one_of(*names: str) -> dict[str, str]:
    """The CEL rule that exactly one of these fields is given."""
    terms = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    return rule(f"{terms} == 1", f"give exactly one of {', '.join(names)}")


# Lengths are bounded everywhere: CEL's cost is estimated from them, and an object has to fit into etcd.
ObjectName: TypeAlias = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
BranchName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")
]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=1024)]
Quantity: TypeAlias = Annotated[
    str | int, Field(json_schema_extra={"x-kubernetes-int-or-string": True}, description="A Kubernetes quantity.")
]
OpenObject: TypeAlias = Annotated[
    dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
]


class ConfigMapRef(Model):
    """One key of a ConfigMap in the same namespace."""

    name: ObjectName = Field(description="The ConfigMap's name.")
    key: str | None = Field(
        default=None, min_length=1, max_length=253, description="The key; may be left out where there is only one."
    )


class SecretRef(Model):
    """A Secret in the same namespace."""

    name: ObjectName = Field(description="The Secret's name.")


class KeyRef(Model):
    """A Secret, or one key of it."""

    name: ObjectName = Field(description="The Secret's name.")
    key: str | None = Field(
        default=None, min_length=1, max_length=253, description="The key; all keys of the Secret without it."
    )


class Resources(Model):
    """Requests and limits of a container."""

    requests: dict[str, Quantity] | None = Field(default=None, description="What is reserved, such as cpu and memory.")
    limits: dict[str, Quantity] | None = Field(default=None, description="What may not be exceeded.")


class Condition(Model):
    """One fact about the object, as kstatus and `kubectl wait` read it."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, json_schema_extra={"type": "object"}
    )

    type: str = Field(max_length=64, description="Which fact.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: int = Field(description="The generation of the spec this was judged for.")
    last_transition_time: datetime = Field(description="When the status last changed.")
    reason: str = Field(max_length=64, description="The cause as one word for machines.")
    message: str = Field(max_length=8192, description="The cause for people: what, where, and what to do next.")
