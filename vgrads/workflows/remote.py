"""Remote files: inputs that are fetched by URL, outputs that are sent to one."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import quote, unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from vgrads.kernel.documents import Document

SCHEMES = ("http", "https", "s3", "file")
_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_PLACEHOLDERS = frozenset({"workflow", "task"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file by its name below a task's folder, and its source or destination. ``digest``:
    ``sha256:…`` or ``md5:…``.

    ``{workflow}`` and ``{task}`` in the URL stand for their names.
    """

    name: str
    url: str
    digest: str = ""

    def of(self, workflow: str, task: str) -> RemoteFile:
        """Return the same for one task of one workflow."""
        return self.named(workflow=workflow).named(task=task)

    def named(self, **names: str) -> RemoteFile:
        """Return the same with some of these names inserted; keys of s3 are not encoded."""
        url = self.url
        for what, name in names.items():
            url = url.replace(
                f"{{{what}}}", name if url.startswith("s3:") else quote(name, safe="")
            )
        return self if url == self.url else replace(self, url=url)


def check_url(url: str) -> str:
    """Raise ValueError for a URL that cannot be fetched from and sent to."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValueError(f"'{url[:80]}' is not a valid URL: {error}") from error
    if parts.scheme not in SCHEMES:
        raise ValueError(f"'{url[:80]}' is not a URL of {', '.join(SCHEMES)}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "contains a user or password, which everybody who can read the set would see"
        )
    if parts.scheme == "file" and (
        parts.netloc not in ("", "localhost") or not parts.path.startswith("/")
    ):
        raise ValueError(f"'{url[:80]}' names another machine (file:///path)")
    if parts.scheme != "file" and not parts.netloc:
        raise ValueError(f"'{url[:80]}' names no machine")
    if any(ord(sign) <= 32 for sign in url):
        raise ValueError(f"'{url[:80]}' contains blanks (write %20)")
    unknown = set(_PLACEHOLDER.findall(url)) - _PLACEHOLDERS
    if unknown:
        raise ValueError(f"unknown placeholder '{{{min(unknown)}}}' (use {{workflow}} or {{task}})")
    return url


Url = Annotated[str, Field(min_length=1, max_length=2000)]


class FetchDocument(Document):
    """An input by URL: its digest, and its name, by default the last part of the URL."""

    url: Url
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    md5: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{32}$")] | None = None
    as_: Annotated[str, Field(alias="as")] = ""

    _url = field_validator("url")(check_url)

    @model_validator(mode="after")
    def _named(self) -> FetchDocument:
        if self.sha256 and self.md5:
            raise ValueError("give 'sha256' or 'md5', not both")
        if not self.file.name:
            raise ValueError("the URL does not end with a file name; give one with 'as'")
        return self

    @property
    def file(self) -> RemoteFile:
        """Return the value of the document."""
        name = self.as_ or posixpath.basename(unquote(urlsplit(self.url).path))
        stated = f"sha256:{self.sha256}" if self.sha256 else f"md5:{self.md5}" if self.md5 else ""
        return RemoteFile(name=name, url=self.url, digest=stated.lower())


class SendDocument(Document):
    """An output that is sent to a URL, and nowhere else."""

    name: Annotated[str, Field(min_length=1)]
    url: Url

    _url = field_validator("url")(check_url)

    @property
    def file(self) -> RemoteFile:
        """Return the value of the document."""
        return RemoteFile(name=self.name, url=self.url)
