"""Where a graph lives: a directory or a prefix of an object store, and the options to reach it.

Credentials come from the environment alone and never leave this module's `Root.options`, which no `repr` shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from omnigraph.errors import BadRequest
from omnigraph.records import dataclass

__all__ = ["Root", "parse_root"]

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_CLOUD = frozenset({"s3", "gs", "az"})


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a graph.

    Args:
        uri: an absolute path, or `s3://bucket/prefix` (also `gs://`, `az://`) without a trailing slash.
        options: Lance storage options, credentials included.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_local(self) -> bool:
        return not _SCHEME.match(self.uri)

    def join(self, *parts: str) -> str:
        return "/".join((self.uri.rstrip("/"), *parts))


def parse_root(text: str, env: Mapping[str, str] | None = None) -> Root:
    """Read a graph URI: a plain path, `file://`, `s3://`; `gs://` and `az://` pass through to Lance.

    Raises:
        BadRequest: the text names a server, carries credentials, has a scheme nothing here can open, or isn't UTF-8.
    """
    try:
        root = _parsed(text, os.environ if env is None else env)
    except ValueError:  # its words may hold credentials
        raise BadRequest("the graph's URI can't be read: its host is none") from None
    try:
        root.uri.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{root.uri!r} is no UTF-8, and a graph's path has to be: rename the folder") from error
    if "\0" in root.uri:
        raise BadRequest(f"{root.uri!r}: no folder can have this name")
    return root


def _parsed(text: str, env: Mapping[str, str]) -> Root:
    match = _SCHEME.match(text)
    if not text.strip():
        raise BadRequest("the graph's URI is empty: give a directory or an s3:// prefix")
    if match is None:
        return Root(os.path.abspath(os.path.expanduser(text)))
    scheme = match[1].lower()
    if scheme == "file":
        return Root(os.path.abspath(unquote(urlsplit(text).path)))
    if scheme in ("http", "https"):
        raise BadRequest(
            f"a graph is stored in a directory or an object store, not at {scheme}://: "
            "http(s) addresses name a running server"
        )
    if scheme not in _CLOUD:
        raise BadRequest(f"{scheme}:// is no place for a graph: use a path, file:// or s3://")
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query:
        raise BadRequest(
            f"credentials don't belong into a {scheme}:// URI: put them into the environment "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, …)"
        )
    prefix = str(PurePosixPath("/" + parts.path)).strip("/")
    if not parts.netloc or ".." in prefix.split("/"):
        raise BadRequest(f"{scheme}:// needs a bucket and a prefix without '..'")
    return Root(f"{scheme}://{parts.netloc}/{prefix}".rstrip("/"), _s3_options(env) if scheme == "s3" else {})


def _s3_options(env: Mapping[str, str]) -> dict[str, str]:
    """The AWS_* settings as Lance's storage options. Path style is Lance's default with an endpoint."""
    options = {
        option: env[name]
        for name, option in (
            ("AWS_REGION", "aws_region"),
            ("AWS_ACCESS_KEY_ID", "aws_access_key_id"),
            ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
            ("AWS_SESSION_TOKEN", "aws_session_token"),
        )
        if env.get(name)
    }
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    if endpoint:
        options["aws_endpoint"] = endpoint
    if _true(env.get("AWS_ALLOW_HTTP")) or (endpoint or "").startswith("http://"):
        options["allow_http"] = "true"
    if env.get("AWS_S3_FORCE_PATH_STYLE") and not _true(env["AWS_S3_FORCE_PATH_STYLE"]):
        options["aws_virtual_hosted_style_request"] = "true"
    return options


def _true(text: str | None) -> bool:
    return (text or "").strip().lower() in {"1", "true", "yes", "on"}
