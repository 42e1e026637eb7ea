"""Every setting: its type, its default, what it means.

Read once at start from the environment (`CHATKEEP_DATABASE_URL`), a `.env` file or `chatkeep.yaml`
(`database: {url: ...}`), in this order, and frozen from then on.
"""

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class DatabaseSettings(Section):
    url: str = Field(
        "sqlite:///var/chatkeep.db", description="sqlite:///path (relative) or postgresql://user@host/name"
    )
    schema_name: str = Field(
        "chatkeep", alias="schema", pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="the PostgreSQL schema that holds every table",
    )
    pooler: bool = Field(False, description="a transaction pooler stands between; it sets the timeouts itself")
    pool_size: int = Field(10, ge=1, le=200, description="connections a process")
    pool_timeout: float = Field(10, gt=0, le=300, description="seconds to wait for a connection")


class DocumentSettings(Section):
    page_bytes: int = Field(16_384, ge=1, le=8_000_000, description="an open page over this is sealed")
    batch_bytes: int = Field(8_000_000, ge=1, description="whole sessions read at once in a list")
    retention_days: int = Field(30, ge=0, description="a deleted chat's sessions are due after this")


class RunSettings(Section):
    lease: float = Field(15, ge=1, le=3600, description="seconds a run belongs to a silent owner")
    renew: float = Field(5, gt=0, le=1200, description="seconds between renewals")
    poll: float = Field(0.5, gt=0, le=10, description="seconds between looks for cancelled and lost runs")
    flush: float = Field(0.05, gt=0, le=5, description="seconds between two commits of the journal")
    grace: float = Field(600, ge=0, le=86_400, description="seconds that an ended run's journal is kept")
    limit: int = Field(1000, ge=1, le=100_000, description="runs a process answers at once; beyond it 503")
    queue_timeout: float = Field(30, ge=0, le=600, description="seconds a question waits for its turn")
    queue_length: int = Field(32, ge=0, le=10_000, description="questions that wait in one session")

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew * 2 > self.lease:
            raise ValueError(
                f"`runs.renew` ({self.renew}) must be at most half of `runs.lease` ({self.lease}): "
                "one late renewal would lose every run"
            )
        return self


class StreamSettings(Section):
    durability: Literal["before_send", "after_send"] = Field(
        "before_send", description="whether readers get a delta after its commit, or 25 ms earlier before it"
    )
    keep_alive: float = Field(15, gt=0, le=300, description="seconds of silence before a comment line")


class IngestSettings(Section):
    lease: float = Field(15, ge=1, le=3600, description="seconds a document belongs to a silent parser")
    poll: float = Field(2, gt=0, le=60, description="seconds between looks for documents that wait")
    parse_seconds: float = Field(120, gt=0, le=3600, description="what reading one document may take")
    parse_megabytes: int = Field(1_000, ge=100, description="memory that reading one document may take")


class ServerSettings(Section):
    threads: int = Field(64, ge=1, le=10_000, description="requests and open streams at once")
    workers: int = Field(1, ge=1, le=64, description="processes; more than one wants PostgreSQL")
    proxies: int = Field(0, ge=0, le=10, description="trusted proxies in front")
    base_path: str = Field("", pattern=r"^(/[^/?#]+)*$", description="path prefix behind a proxy")
    cors_origins: list[str] = Field(default_factory=list, description="origins allowed on token routes")
    drain_delay: float = Field(0, ge=0, le=300, description="seconds the listener stays after SIGTERM")
    drain_timeout: float = Field(10, ge=0, le=3600, description="seconds running answers get after that")


class LimitSettings(Section):
    body_bytes: int = Field(2_000_000, ge=1, description="a JSON body")
    upload_bytes: int = Field(32_000_000, ge=1, description="an upload, or a completion with a whole history")
    files: int = Field(256, ge=1, le=10_000, description="files an upload")
    message_bytes: int = Field(262_144, ge=1, description="one user message")
    messages: int = Field(10_000, ge=1, description="messages a completion brings along")
    extra_bytes: int = Field(16_384, ge=1, description="what a client adds to its message")
    json_depth: int = Field(64, ge=4, le=500, description="nesting of a JSON body")
    ids: int = Field(1_000, ge=1, description="ids a call")
    text_length: int = Field(255, ge=1, description="characters of a client's id")


class ModelSettings(Section):
    base_url: str = Field("", description="an OpenAI-compatible server; empty: the built-in extractive model")
    api_key: SecretStr = Field(SecretStr(""), description="its key")
    name: str = Field("", description="the model id sent upstream")
    connect_timeout: float = Field(10, gt=0, le=600)
    first_token_timeout: float = Field(120, gt=0, le=3600)
    idle_timeout: float = Field(60, gt=0, le=3600)
    total_timeout: float = Field(1800, gt=0, le=86_400)
    retries: int = Field(2, ge=0, le=10, description="tries again before the first token")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="CHATKEEP_", env_nested_delimiter="_", env_nested_max_split=1,
        env_file=".env", extra="ignore", frozen=True,
    )

    host: str = "127.0.0.1"
    port: int = Field(9380, ge=0, le=65_535)
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    migrate_url: str = Field("", description="database URL for migrations, past a pooler; default the same")
    database: DatabaseSettings = DatabaseSettings()
    document: DocumentSettings = DocumentSettings()
    runs: RunSettings = RunSettings()
    stream: StreamSettings = StreamSettings()
    ingest: IngestSettings = IngestSettings()
    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    model: ModelSettings = ModelSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = Path(os.environ.get("CHATKEEP_CONFIG", "chatkeep.yaml"))
        yaml = YamlConfigSettingsSource(settings_cls, yaml_file=path)
        return init_settings, env_settings, dotenv_settings, yaml


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process. pydantic's ValidationError names the setting that is wrong."""
    return Settings(**overrides)
