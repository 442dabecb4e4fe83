"""Settings of the service: a TOML file, the environment (``VGRADS_…``), options; later ones have
precedence."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, SettingsConfigDict, SettingsError
from pydantic_settings import PydanticBaseSettingsSource as Source

from vgrads.kernel.documents import Count, Positive, document_error
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.kernel.rate_limiter import parse_rate
from vgrads.kernel.units import parse_duration
from vgrads.portal.records.reader import database_url
from vgrads.portal.web.embedding.forecast_access import checked_origin, checked_queue
from vgrads.portal.web.embedding.wait_gauges import MOST_GAUGES, WaitGauge

CONFIG = "VGRADS_CONFIG"


class OidcSettings(BaseModel):
    """Login through an OpenID Connect provider; ``operators``: user names there."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    issuer: Annotated[str, Field(pattern=r"^https?://")]
    client_id: str
    client_secret: str = ""
    claim: str = "email"
    scopes: tuple[Literal["read", "submit", "operate"], ...] = ("submit",)
    operators: tuple[str, ...] = ()


class ServiceSettings(BaseSettings):
    """All settings of ``vgrads serve``. Durations as ``30d``; a rate as ``200/second``, empty:
    unlimited."""

    model_config = SettingsConfigDict(
        env_prefix="VGRADS_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    db: str = ""
    sites: Path | None = None
    tokens: Literal["auto", "required"] = "auto"
    allowed_hosts: tuple[str, ...] = ()
    url: Annotated[str, Field(pattern=r"^(https?://.+)?$")] = ""
    planners: Annotated[int, Field(ge=0, le=64)] = 2
    runs: Annotated[int, Field(ge=1, le=1000)] = 16
    max_tasks: Count = 50_000
    max_body_mib: Positive = 32.0
    max_upload_mib: Positive = 256.0
    max_history_mib: Positive = 2048.0
    rate: str = "200/second"
    at_once: Count = 128
    trusted_proxies: tuple[str, ...] = ()
    log: Literal["text", "json"] = "text"
    own: bool = False
    keep: str = ""
    history_keep: str = ""
    oidc: OidcSettings | None = None
    origins: tuple[str, ...] = ()
    public_forecasts: tuple[str, ...] = ()
    wait_gauges: Annotated[tuple[WaitGauge, ...], Field(max_length=MOST_GAUGES)] = ()
    alarm_schemes: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]{0,30}$")], ...] = ()
    alarm_networks: tuple[str, ...] = ()

    @field_validator("origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_origin, value))

    @field_validator("public_forecasts")
    @classmethod
    def _queues(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_queue, value))

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: str) -> str:
        if value:
            parse_rate(value)
        return value

    @field_validator("trusted_proxies", "alarm_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            ipaddress.ip_network(text, strict=False)
        return value

    @field_validator("keep", "history_keep")
    @classmethod
    def _duration(cls, value: str) -> str:
        if value:
            try:
                parse_duration(value, "")
            except InputError as error:
                raise ValueError(error.what) from error
        return value

    @property
    def database(self) -> str:
        """Return the database's URL."""
        return self.db or database_url()

    @property
    def loopback(self) -> bool:
        """Return True where no other machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def keep_s(self, name: Literal["keep", "history_keep"]) -> float | None:
        """Return how long ended runs, or jobs of histories, are kept; None: for ever."""
        text: str = getattr(self, name)
        return parse_duration(text, name) if text else None


def load_settings(file: Path | None = None, **options: Any) -> ServiceSettings:
    """Load the settings of a file (default: the one that ``VGRADS_CONFIG`` names), the environment
    and options."""
    chosen = file or (Path(os.environ[CONFIG]) if os.environ.get(CONFIG) else None)
    stated = _read_file_values(chosen) if chosen else {}
    document = {name: value for name, value in options.items() if value is not None}

    class Layers(ServiceSettings):
        @classmethod
        def settings_customise_sources(  # type: ignore[override]
            cls,
            settings_cls: type[BaseSettings],
            init_settings: Source,
            env_settings: Source,
            **_: Source,
        ) -> tuple[Source, ...]:
            # options, environment, file: the first that states a value counts
            return init_settings, env_settings, InitSettingsSource(settings_cls, stated)

    try:
        return Layers(**document)
    except ValidationError as error:
        where = str(chosen) if chosen else "settings"
        raise document_error(error, ServiceSettings, stated, where) from error
    except SettingsError as error:
        raise InputError(str(error), where="environment") from error


def _read_file_values(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"cannot be parsed: {error}", where=str(file)) from error
    if "sites" in values:
        values["sites"] = file.resolve().parent / str(values["sites"])
    return values
