"""Every setting: its type, its default, what it means.

Read once at start from the environment (`CHATKEEP_DATABASE_URL`), a `.env` file or `chatkeep.yaml`
(`database: {url: ...}`), in this order, and frozen from then on.
"""

import os
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from conf.sound import is_server_address, password_in, sound_base_path, sound_host, sound_schema
from conf.sources import PREFIX, sources


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)


class DatabaseSettings(Section):
    url: str = Field(
        "sqlite:///var/chatkeep.db", description="sqlite:///path (relative) or postgresql://user@host/name"
    )
    schema_name: Annotated[str, AfterValidator(sound_schema)] = Field(
        "chatkeep", alias="schema", description="the PostgreSQL schema that holds every table"
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
    workers: int = Field(1, ge=1, le=64, description="processes; on SQLite one of them writes at a time")
    proxies: int = Field(0, ge=0, le=10, description="trusted proxies in front")
    metrics: bool = Field(True, description="whether /metrics answers; it needs no token")
    body_silence: float = Field(30, gt=0, le=600, description="seconds that a client may be silent within a body")
    base_path: Annotated[str, AfterValidator(sound_base_path)] = Field("", description="path prefix behind a proxy")
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


class Endpoint(Section):
    """A model behind an HTTP server that speaks as OpenAI's does."""

    base_url: str = Field("", description="the server's API, such as http://127.0.0.1:8080/v1")
    api_key: SecretStr = Field(SecretStr(""), description="its key")
    api_key_env: str = Field("", description="the environment variable that holds the key, in place of `api_key`")
    connect_timeout: float = Field(10, gt=0, le=600, description="seconds until the server takes the connection")
    retries: int = Field(2, ge=0, le=10, description="tries again after a failure that may pass")

    @model_validator(mode="before")
    @classmethod
    def _key_from_environment(cls, given: Any) -> Any:
        variable = given.get("api_key_env") if isinstance(given, dict) else None
        if not isinstance(variable, str) or not variable:
            return given
        key = os.environ.get(variable)
        if key is None:
            raise ValueError(f"`api_key_env` names {variable!r}, which the environment doesn't have")
        return given | {"api_key": key}


class ModelSettings(Endpoint):
    """The default chat model. Retries end with the first token: what was said is never said again."""

    name: str = Field("", description="the model id sent upstream")
    first_token_timeout: float = Field(120, gt=0, le=3600, description="seconds until the first token, each try")
    idle_timeout: float = Field(60, gt=0, le=3600, description="seconds of silence within an answer")
    total_timeout: float = Field(1800, gt=0, le=86_400, description="seconds for everything, tries included")

    @property
    def upstream(self) -> str:
        """The model id that the server knows."""
        return self.name


class NamedModelSettings(ModelSettings):
    """One more chat model, which a chat chooses by `llm_id`."""

    name: str = Field(min_length=1, max_length=128, description="what chats call it")
    model: str = Field("", description="the model id sent upstream; empty: the name")
    base_url: str = Field(min_length=1, description="the server's API")

    @property
    def upstream(self) -> str:
        return self.model or self.name


class TextModelSettings(Endpoint):
    """A model that reads many texts at once. Without a `base_url` there is none."""

    name: str = Field("", max_length=128, description="the model id sent upstream, and what clients call it")
    timeout: float = Field(60, gt=0, le=3600, description="seconds for one request")
    batch: int = Field(32, ge=1, le=2048, description="texts a request")
    text_length: int = Field(8_000, ge=100, le=1_000_000, description="characters of a text that are sent")


class EmbeddingSettings(TextModelSettings):
    """The model behind `/embeddings`."""


class RerankSettings(TextModelSettings):
    """The model behind `/rerank`, as Jina, Cohere, vLLM and llama.cpp speak it."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="_", env_nested_max_split=1,
        extra="ignore", frozen=True, hide_input_in_errors=True,
    )

    host: Annotated[str, AfterValidator(sound_host)] = "127.0.0.1"
    port: int = Field(9380, ge=0, le=65_535)
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    migrate_url: str = Field("", description="database URL for migrations, past a pooler; default the same")
    database: DatabaseSettings = Field(DatabaseSettings(), validate_default=True)
    document: DocumentSettings = DocumentSettings()
    runs: RunSettings = RunSettings()
    stream: StreamSettings = StreamSettings()
    ingest: IngestSettings = IngestSettings()
    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    model: ModelSettings = ModelSettings()
    models: tuple[NamedModelSettings, ...] = Field((), description="more chat models; a JSON list in the environment")
    embedding: EmbeddingSettings = EmbeddingSettings()
    rerank: RerankSettings = RerankSettings()

    @property
    def secrets(self) -> list[str]:
        """What no log may show: the models' keys and the databases' passwords."""
        endpoints = (self.model, *self.models, self.embedding, self.rerank)
        keys = [endpoint.api_key.get_secret_value().strip() for endpoint in endpoints]
        return keys + [password_in(url) for url in (self.database.url, self.migrate_url)]

    @field_validator("database")
    @classmethod
    def _migrated(cls, database: DatabaseSettings, info: ValidationInfo) -> DatabaseSettings:
        migrated = info.data.get("migrate_url")
        if migrated and migrated.startswith("sqlite:") != database.url.startswith("sqlite:"):
            raise ValueError("`migrate_url` and `database.url` name different kinds of database; they are one")
        return database

    @field_validator("model", "embedding", "rerank")
    @classmethod
    def _reachable(
        cls, section: ModelSettings | TextModelSettings, info: ValidationInfo
    ) -> ModelSettings | TextModelSettings:
        _check_endpoint(str(info.field_name), section)
        if isinstance(section, TextModelSettings) and section.base_url and not section.name:
            raise ValueError(f"`{info.field_name}.name` is missing: the server wants to know which model")
        return section

    @field_validator("models")
    @classmethod
    def _told_apart(
        cls, models: tuple[NamedModelSettings, ...], info: ValidationInfo
    ) -> tuple[NamedModelSettings, ...]:
        default = info.data.get("model")
        taken = {"default"} | ({default.name} - {""} if default else set())
        for n, model in enumerate(models):
            _check_endpoint(f"models.{n}", model)
            if model.name in taken:
                raise ValueError(f"`models.{n}.name` {model.name!r} is another model's name already")
            taken.add(model.name)
        return models

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return sources(settings_cls, init_settings)


def _check_endpoint(name: str, endpoint: ModelSettings | TextModelSettings) -> None:
    """Raises ValueError, with the setting's name, where it is a model without an address, or has an address or a key
    that no request can carry."""
    key = endpoint.api_key.get_secret_value().strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"`{name}.api_key` has characters that no HTTP header can hold")
    if not endpoint.base_url and (endpoint.name or key):
        raise ValueError(
            f"`{name}.base_url` is missing, the address of the server that has this model "
            f"({PREFIX}{name.upper()}_BASE_URL)"
        )
    if endpoint.base_url and not is_server_address(endpoint.base_url):
        raise ValueError(f"`{name}.base_url` must be an address such as http://127.0.0.1:8080/v1, without a key in it")


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process. pydantic's ValidationError names the setting that is wrong, WrongSettings the
    source."""
    return Settings(**overrides)
