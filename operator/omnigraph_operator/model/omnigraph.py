"""The OmniGraph kind: where a graph lives, its schema, its loads, its servers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from omnigraph.write.mapping import Mapping
from omnigraph_operator.model.common import (
    BranchName,
    Condition,
    ConfigMapRef,
    KeyRef,
    Model,
    Name,
    ObjectName,
    OpenObject,
    Quantity,
    Resources,
    SecretRef,
    Text,
    exactly_one_of,
    rule,
)

__all__ = [
    "Auth",
    "Embedding",
    "Load",
    "LoadSource",
    "OmniGraphSpec",
    "OmniGraphStatus",
    "Queries",
    "ReadOnly",
    "ReadWrite",
    "Recovery",
    "Schema",
    "SchemaPolicy",
    "Server",
    "Spark",
    "SparkDriver",
    "SparkExecutor",
    "Storage",
    "Task",
    "Volume",
]

Inline = Annotated[str, Field(min_length=1, max_length=131072)]


def _rules(*rules: dict[str, Any]) -> ConfigDict:
    return ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        json_schema_extra={"x-kubernetes-validations": list(rules)},
    )


class Volume(Model):
    """The volume that holds a graph with a file: URI."""

    model_config = _rules(
        exactly_one_of("claimName", "size"),
        rule("!has(self.storageClassName) || has(self.size)", "storageClassName goes with size"),
    )

    claim_name: ObjectName | None = Field(default=None, description="A PersistentVolumeClaim that is already there.")
    size: Quantity | None = Field(default=None, description="Size of a claim to be made, such as 10Gi.")
    storage_class_name: ObjectName | None = Field(default=None, description="Storage class of the claim to be made.")


class Storage(Model):
    """Where the graph lives."""

    model_config = _rules(
        rule("self.uri == oldSelf.uri", "storage.uri can't be changed: a graph doesn't move; make a new OmniGraph"),
        rule(
            "!has(self.volume) || self.uri.startsWith('file:')",
            "a volume goes with a file: URI; object stores need none",
        ),
    )

    uri: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^(s3://[^/]+/.+|file:.+)$",
        description="s3://bucket/prefix, or file:///folder on the volume. Without a cluster, file: paths may be "
        "relative to the manifest's folder.",
    )
    secret_ref: SecretRef | None = Field(
        default=None, description="Secret whose keys (AWS_ACCESS_KEY_ID, …) become environment of what touches storage."
    )
    endpoint: Text | None = Field(default=None, description="URL of an S3 endpoint other than AWS's.")
    region: Text | None = Field(default=None, description="Region of the bucket.")
    path_style: bool | None = Field(default=None, description="Bucket in the path instead of the host name.")
    allow_http: bool | None = Field(default=None, description="Allow an endpoint without TLS.")
    volume: Volume | None = Field(default=None, description="Volume for a file: URI on a cluster.")


class Schema(Model):
    """The schema in the .pg language."""

    model_config = _rules(exactly_one_of("inline", "configMapRef"))

    inline: Inline | None = Field(default=None, description="The schema's text.")
    config_map_ref: ConfigMapRef | None = Field(default=None, description="The ConfigMap that holds the text.")


class SchemaPolicy(Model):
    """What happens when the schema here and the graph's own differ."""

    apply: Literal["Automatic", "Manual", "InitOnly"] = Field(
        default="Automatic",
        description="Automatic plans and applies safe changes; Manual waits for approval; InitOnly never changes it.",
    )
    allow_data_loss: bool = Field(default=False, description="Let a change drop types or properties with their data.")


class LoadSource(Model):
    """Where a load's records come from."""

    model_config = _rules(
        exactly_one_of("uri", "configMapRef", "claimName"),
        rule("!has(self.path) || has(self.claimName)", "path goes with claimName"),
    )

    uri: Text | None = Field(
        default=None,
        description="A file, a glob or, with a mapping, the folder its paths start from: s3:// or file:. Without a "
        "cluster, relative to the manifest's folder.",
    )
    config_map_ref: ConfigMapRef | None = Field(default=None, description="A ConfigMap that holds the records.")
    claim_name: ObjectName | None = Field(default=None, description="A PersistentVolumeClaim with the files.")
    path: Text | None = Field(default=None, description="File, glob or folder on the claim.")


class Load(Model):
    """Records that belong into the graph. Runs once for every content of its source."""

    model_config = _rules(
        rule(
            "has(self.mapping) || self.format == 'ndjson'",
            "parquet, csv and arrow need a mapping that says which type the rows are",
        ),
    )

    name: Name = Field(description="Unique within the graph; names the load in status and messages.")
    source: LoadSource = Field(description="Where the records come from.")
    format: Literal["ndjson", "parquet", "csv", "arrow"] = Field(default="ndjson", description="What the files hold.")
    mapping: Mapping | None = Field(
        default=None,
        description="Which type the rows of each file are, and which column is which property. Paths are relative "
        "to the source.",
    )
    mode: Literal["append", "merge", "overwrite"] = Field(
        default="append", description="append adds, merge updates what has the same key, overwrite replaces."
    )
    branch: BranchName = Field(default="main", description="The graph's branch to load into.")
    spark: Literal["Auto", "Always", "Never"] = Field(
        default="Auto", description="Overrides, for this load, the choice that spark.mode makes by the source's size."
    )


class ReadWrite(Model):
    """The server that may write. There is at most one."""

    enabled: bool = Field(default=True, description="Whether it runs.")
    resources: Resources | None = Field(default=None, description="Its container's requests and limits.")
    port: int | None = Field(
        default=None, ge=1, le=65535, description="Its port; 8080 on a cluster, else a free one that then stays."
    )


class ReadOnly(Model):
    """Servers that only read."""

    replicas: int = Field(default=0, ge=0, le=100, description="How many.")
    resources: Resources | None = Field(default=None, description="Requests and limits of each.")
    port: int | None = Field(
        default=None, ge=1, le=65535, description="Their port; 8080 on a cluster, else a free one that then stays."
    )


class Auth(Model):
    """Who may use the servers."""

    model_config = _rules(
        rule(
            "has(self.tokensSecretRef) != (has(self.unauthenticated) && self.unauthenticated)",
            "give either tokensSecretRef or unauthenticated: true",
        )
    )

    tokens_secret_ref: KeyRef | None = Field(default=None, description="Secret with the bearer tokens.")
    unauthenticated: bool = Field(default=False, description="Serve everybody without a token.")


class Queries(Model):
    """Stored queries: a text in the .gq language."""

    model_config = _rules(exactly_one_of("inline", "configMapRef"))

    inline: Inline | None = Field(default=None, description="The queries' text.")
    config_map_ref: ConfigMapRef | None = Field(
        default=None, description="The ConfigMap that holds them; all its keys ending in .gq without a key."
    )


class Embedding(Model):
    """Who makes the vectors of @embed and of questions asked with a text."""

    model_config = _rules(
        rule("!has(self.apiKeySecretRef) || has(self.apiKeySecretRef.key)", "apiKeySecretRef names one key"),
        rule(
            "!(self.provider in ['mock', 'none']) || !(has(self.apiKeySecretRef) || has(self.baseUrl))",
            "the providers mock and none take neither apiKeySecretRef nor baseUrl",
        ),
    )

    provider: Literal["openai-compatible", "gemini", "mock", "none"] = Field(
        default="openai-compatible", description="Its protocol; mock makes vectors up, none makes none."
    )
    model: Text | None = Field(
        default=None, description="The model; default: the one that the schema records, else the provider's own."
    )
    base_url: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        pattern=r"^https?://[^/]+",
        description="Root of the API, such as http://ollama:11434/v1; default: the provider's own.",
    )
    api_key_secret_ref: KeyRef | None = Field(
        default=None, description="Secret and key with the API key; servers of your own may need none."
    )

    @property
    def environment(self) -> dict[str, str]:
        """The settings as a process reads them, without the key."""
        given = {"PROVIDER": self.provider, "MODEL": self.model, "BASE_URL": self.base_url}
        return {f"OMNIGRAPH_EMBED_{name}": value for name, value in given.items() if value is not None}


class Server(Model):
    """The graph's servers."""

    enabled: bool = Field(default=True, description="Whether any server runs.")
    read_write: ReadWrite = Field(default=ReadWrite(), description="The server that may write.")
    read_only: ReadOnly = Field(default=ReadOnly(), description="Servers that only read.")
    auth: Auth = Field(description="Who may use them.")
    queries: list[Queries] = Field(default=[], max_length=32, description="Stored queries they offer.")
    embedding: Embedding | None = Field(
        default=None, description="Who makes vectors, in the servers and in loads; nobody without it."
    )


class SparkDriver(Model):
    """The Spark driver."""

    cores: int | None = Field(default=None, ge=1, le=256, description="Its cores.")
    memory: str | None = Field(
        default=None, max_length=16, pattern=r"^[0-9]+[kmgt]?$", description="Its heap, such as 2g."
    )
    template: OpenObject | None = Field(default=None, description="Pod template laid over the driver's.")


class SparkExecutor(SparkDriver):
    """The Spark executors."""

    cores: int | None = Field(default=None, ge=1, le=256, description="Cores of each.")
    memory: str | None = Field(
        default=None, max_length=16, pattern=r"^[0-9]+[kmgt]?$", description="Heap of each, such as 2g."
    )
    template: OpenObject | None = Field(default=None, description="Pod template laid over the executors'.")
    instances: int | None = Field(default=None, ge=1, le=1000, description="How many.")


class Spark(Model):
    """When and how loads run on Spark."""

    mode: Literal["Auto", "SparkOperator", "Job", "Never"] = Field(
        default="Auto",
        description="Auto takes Spark for big sources, as a SparkApplication where those are served, else in one Job; "
        "SparkOperator and Job insist on their way; Never loads in one process.",
    )
    image: Text | None = Field(default=None, description="Image of driver and executors; default: the task's.")
    driver: SparkDriver = Field(default=SparkDriver(), description="The driver.")
    executor: SparkExecutor = Field(default=SparkExecutor(), description="The executors.")
    conf: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default={}, description="Spark configuration, key by key."
    )


class Task(Model):
    """The pods of short work: init, sweep, load, index."""

    image: Text | None = Field(default=None, description="Their image; default: the operator's own choice.")
    resources: Resources | None = Field(default=None, description="Requests and limits.")
    template: OpenObject | None = Field(default=None, description="Pod template laid over the one made here.")
    service_account_name: ObjectName | None = Field(default=None, description="Their ServiceAccount.")


class Recovery(Model):
    """How interrupted writes are settled."""

    timeout: str = Field(
        default="10m", max_length=16, pattern=r"^[0-9]+[smh]$", description="How long one sweep may take: 30s, 10m, 2h."
    )
    on_rollback: Literal["FenceAndRollBack", "Hold"] = Field(
        default="FenceAndRollBack",
        description="When a write must be rolled back beside a live server: stop the server meanwhile, or hold.",
    )

    @property
    def timeout_seconds(self) -> int:
        """The timeout in seconds."""
        return int(self.timeout[:-1]) * {"s": 1, "m": 60, "h": 3600}[self.timeout[-1]]


class OmniGraphSpec(Model):
    """What the owner wants of the graph."""

    storage: Storage = Field(description="Where the graph lives.")
    schema_: Schema = Field(alias="schema", description="The schema the graph should have.")
    schema_policy: SchemaPolicy = Field(default=SchemaPolicy(), description="How schema changes are applied.")
    adopt: Literal["IfExists", "Never"] = Field(
        default="IfExists", description="Whether a graph that is already at storage.uri is taken over."
    )
    loads: list[Load] = Field(
        default=[],
        max_length=64,
        description="Records to load, in this order.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    server: Server | None = Field(default=None, description="The graph's servers; none without it.")
    spark: Spark = Field(default=Spark(), description="When and how loads run on Spark.")
    task: Task = Field(default=Task(), description="The pods of short work.")
    recovery: Recovery = Field(default=Recovery(), description="How interrupted writes are settled.")
    suspend: bool = Field(default=False, description="Do nothing until this is false again; what runs is left alone.")
    deletion_policy: Literal["Retain", "Delete"] = Field(
        default="Retain", description="What becomes of the data when this object is deleted; adopted data is kept."
    )


# ---- status ----------------------------------------------------------------------------------------------------------


class Head(Model):
    """The newest commit of main that an operation here reported."""

    commit: str = Field(max_length=64, description="Its id.")
    manifest_version: int | None = Field(default=None, description="The version it was published as.")
    time: datetime | None = Field(default=None, description="When it was made.")


class Tables(Model):
    """How much main held after the newest operation made here."""

    count: int = Field(description="Tables.")
    rows: int = Field(description="Rows over all tables.")


class Endpoints(Model):
    """Where the servers answer."""

    read_write: str | None = Field(default=None, max_length=512, description="URL of the read-write server.")
    read_only: str | None = Field(default=None, max_length=512, description="URL of the read-only servers.")


class Writer(Model):
    """Who may write."""

    holder: str = Field(max_length=63, description="The workload that holds the graph's lease.")
    since: datetime | None = Field(default=None, description="Since when.")


class RecoveryStatus(Model):
    """What the last sweep found."""

    last_sweep: datetime | None = Field(default=None, description="When it ended.")
    outcome: str = Field(max_length=32, description="Clean, Recovered, Pending or Failed.")
    recovered: list[Annotated[str, Field(max_length=512)]] = Field(
        default=[], max_length=20, description="Interrupted writes it settled: operation and outcome."
    )
    pending: list[Annotated[str, Field(max_length=512)]] = Field(
        default=[], max_length=20, description="Interrupted writes that remain."
    )


class LoadStatus(Model):
    """What became of one load."""

    name: Name = Field(description="The load's name.")
    phase: Literal["Pending", "Running", "Loaded", "Failed"] = Field(description="How far it is.")
    digest: str = Field(default="", max_length=64, description="What was loaded, or is being: source and settings.")
    revision: int = Field(default=0, description="How many other contents were loaded under this name before.")
    engine: str = Field(default="", max_length=32, description="process, spark or spark-application.")
    engine_reason: str = Field(default="", max_length=512, description="Why that engine.")
    workload: str = Field(default="", max_length=63, description="The workload that did or does it.")
    commit: str = Field(default="", max_length=64, description="The commit it made.")
    rows: int = Field(default=0, description="Rows loaded.")
    seconds: float | None = Field(default=None, description="How long the load took.")
    finished_at: datetime | None = Field(default=None, description="When it ended.")
    message: str = Field(default="", max_length=4096, description="What went wrong.")


class IndexStatus(Model):
    """Indexes of one branch."""

    branch: BranchName = Field(description="The branch.")
    digest: str = Field(max_length=64, description="The loads they were built for.")
    commit: str = Field(default="", max_length=64, description="The commit that published them.")


class Attempts(Model):
    """Failed attempts of one piece of work."""

    work: str = Field(max_length=100, description="Which work: init, sweep, load/NAME, index/BRANCH, serve-rw, …")
    digest: str = Field(max_length=64, description="Of what.")
    failures: int = Field(description="Attempts that failed so far.")
    since: int = Field(default=0, description="How many of those belong to earlier rounds.")
    counted: int = Field(default=0, description="Failures of this round that weren't interruptions from outside.")
    permanent: bool = Field(default=False, description="Trying again can't help until something is changed.")
    round: str = Field(default="", max_length=128, description="What began this round: generation and reconcile-at.")
    last_failed: datetime | None = Field(default=None, description="When the last one failed.")
    code: str = Field(default="", max_length=64, description="The last failure's code.")
    message: str = Field(default="", max_length=4096, description="The last failure's message.")


class OmniGraphStatus(Model):
    """What is so. Written on every pass that changes it."""

    observed_generation: int = Field(default=-1, description="The generation this status speaks of.")
    phase: str = Field(default="", max_length=32, description="The state in one word, for people.")
    conditions: list[Condition] = Field(
        default=[],
        max_length=32,
        description="The facts, for machines.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    uri: str = Field(default="", max_length=1024, description="Where the graph lives.")
    format_version: int | None = Field(default=None, description="The storage format's version.")
    schema_hash: str = Field(default="", max_length=64, description="sha256 of the schema the graph has.")
    created: bool | None = Field(default=None, description="Whether this object made the graph; false: adopted it.")
    head: Head | None = Field(default=None, description="The newest commit of main known here.")
    tables: Tables | None = Field(default=None, description="How much was loaded.")
    endpoints: Endpoints | None = Field(default=None, description="Where the servers answer.")
    writer: Writer | None = Field(default=None, description="Who may write just now.")
    recovery: RecoveryStatus | None = Field(default=None, description="What the last sweep found.")
    loads: list[LoadStatus] = Field(
        default=[],
        max_length=64,
        description="What became of each load.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    indexes: list[IndexStatus] = Field(
        default=[],
        max_length=64,
        description="Indexes by branch.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["branch"]},
    )
    attempts: list[Attempts] = Field(
        default=[],
        max_length=128,
        description="Failed attempts that still matter.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["work"]},
    )
    last_handled_reconcile_at: str = Field(
        default="", max_length=128, description="The omnigraph.io/reconcile-at annotation this pass has seen."
    )
