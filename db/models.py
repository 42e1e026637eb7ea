"""The rows. Columns carry RAGFlow's names where RAGFlow has them.

A query starts from its owner (services/principal.py); the two document columns are written by
db/document alone.
"""

from peewee import (
    BigIntegerField,
    BlobField,
    BooleanField,
    CharField,
    CompositeKey,
    DoubleField,
    Field,
    IntegerField,
    TextField,
)

from db.database import Pool, database
from db.ids import new_id
from db.rows import DocumentField, JSONTextField, Row, TimedRow, date_of, now_ms, touched

__all__ = ["date_of", "now_ms", "touched"]


class Tenant(Row):
    id = CharField(primary_key=True, default=new_id)
    name = CharField(unique=True)
    create_time = BigIntegerField(default=now_ms)


class Dialog(TimedRow):
    """A chat: its model, its prompt, its datasets."""

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    name = CharField()
    name_key = CharField()
    description = TextField(null=True)
    icon = TextField(null=True)
    language = CharField(null=True, default="English")
    llm_id = CharField()
    tenant_llm_id = CharField(null=True)
    llm_setting = JSONTextField(default=dict)
    prompt_type = CharField(default="simple")
    prompt_config = JSONTextField(default=dict)
    meta_data_filter = JSONTextField(null=True, default=dict)
    similarity_threshold = DoubleField(default=0.1)
    vector_similarity_weight = DoubleField(default=0.3)
    top_n = IntegerField(default=6)
    top_k = IntegerField(default=1024)
    do_refer = CharField(default="1")
    rerank_id = CharField(default="")
    tenant_rerank_id = CharField(null=True)
    kb_ids = JSONTextField(default=list)
    status = CharField(null=True, default="1")


class DocumentRow(TimedRow):
    """What both conversation tables share: owner, counters, and last the document's open page."""

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    dialog_id = CharField()
    user_id = CharField(null=True)
    visitor_id = CharField(null=True)
    name = CharField(null=True)
    name_source = CharField(default="default")
    format = IntegerField(default=1)
    revision = BigIntegerField(default=0)
    next_seq = BigIntegerField(default=1)
    message_count = IntegerField(default=0)
    page_count = IntegerField(default=0)
    open_bytes = BigIntegerField(default=0)
    document_bytes = BigIntegerField(default=0)
    message = DocumentField(default=list)
    reference = DocumentField(default=list)

    @classmethod
    def light(cls) -> list[Field]:
        """Every column but the document's two: what lists read."""
        return [field for field in cls._meta.sorted_fields if field.name not in ("message", "reference")]


class Conversation(DocumentRow):
    """A session of the REST API or of a channel bot."""


class API4Conversation(DocumentRow):
    """A session of an embedded page or an agent, with its statistics."""

    exp_user_id = CharField(null=True)
    tokens = IntegerField(default=0)
    source = CharField(null=True)
    dsl = JSONTextField(null=True, default=dict)
    duration = DoubleField(default=0)
    round = IntegerField(default=0)
    thumb_up = IntegerField(default=0)
    errors = TextField(null=True)
    version_title = CharField(null=True)

    class Meta:
        table_name = "api_4_conversation"


class ChatChannel(TimedRow):
    """A bot on a chat platform, connected to a dialog."""

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    name = CharField()
    channel = CharField()
    config = JSONTextField(default=dict)
    chat_id = CharField(null=True)
    status = IntegerField(default=1)


class ApiToken(TimedRow):
    """A credential; `token` holds its SHA-256, never the secret."""

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    token = CharField(unique=True)
    dialog_id = CharField(null=True)
    source = CharField(null=True)
    beta = CharField(null=True)
    prefix = CharField()
    name = CharField(null=True)
    origins = JSONTextField(default=list)
    last_used_time = BigIntegerField(null=True)
    expires_time = BigIntegerField(null=True)
    revoked_time = BigIntegerField(null=True)


class Run(Row):
    """One generation. Times are epoch seconds of the database's clock."""

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    conversation_id = CharField(null=True)
    kind = CharField(default="chat")
    turn_id = CharField(null=True)
    client_run_id = CharField(null=True)
    parent_run_id = CharField(null=True)
    idempotency_key = CharField(null=True)
    status = CharField(default="active")
    outcome = CharField(null=True)
    finish_reason = CharField(null=True)
    error_code = CharField(null=True)
    error_message = TextField(null=True)
    usage = JSONTextField(null=True)
    owner = CharField(null=True)
    lease_until = DoubleField(null=True)
    cancel_requested = BooleanField(default=False)
    arrival = BigIntegerField(default=0)
    input = JSONTextField(null=True)
    last_n = IntegerField(default=0)
    started_at = DoubleField(null=True)
    ended_at = DoubleField(null=True)


class RunEvent(Row):
    """The journal of a run: its events, numbered from 1."""

    run_id = CharField()
    n = IntegerField()
    payload = TextField()

    class Meta:
        primary_key = CompositeKey("run_id", "n")


class MessageIndex(Row):
    """Where an entry stands: by seq, by uid, by turn id."""

    conversation_id = CharField()
    seq = BigIntegerField()
    uid = CharField()
    message_id = CharField(null=True)
    role = CharField()

    class Meta:
        primary_key = CompositeKey("conversation_id", "seq")


class Dataset(TimedRow):
    """A knowledge base: documents that chats search."""

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    name = CharField()
    description = TextField(null=True)
    document_count = IntegerField(default=0)
    chunk_count = IntegerField(default=0)
    avatar = TextField(null=True)
    embedding_model = CharField(default="")
    dimensions = IntegerField(default=0)


class DatasetDocument(TimedRow):
    """One source of a dataset. `run` is UNSTART, RUNNING (waiting or being parsed), DONE, FAIL or CANCEL;
    `progress` is from 0 to 1, and -1 after a failure. `enabled` is how available its passages are made. Lease and
    beginning are epoch seconds of the database's clock.
    """

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    dataset_id = CharField()
    name = CharField()
    location = TextField(null=True)
    size = BigIntegerField(default=0)
    digest = CharField()
    run = CharField(default="UNSTART")
    progress = DoubleField(default=0)
    progress_msg = TextField(default="")
    chunk_count = IntegerField(default=0)
    meta_fields = JSONTextField(default=dict)
    enabled = IntegerField(default=1)
    owner = CharField(null=True)
    lease_until = DoubleField(null=True)
    attempts = IntegerField(default=0)
    began_at = DoubleField(null=True)
    duration = DoubleField(default=0)


class DatasetFile(Row):
    """A document's bytes as they came."""

    document_id = CharField(primary_key=True)
    content = BlobField()


class DatasetChunk(Row):
    """A passage. `search_text` is its normalised words, what the full-text index reads."""

    id = CharField(primary_key=True, default=new_id)
    tenant_id = CharField()
    dataset_id = CharField()
    document_id = CharField()
    chunk_index = IntegerField()
    content = TextField()
    heading = TextField(default="")
    page = IntegerField(null=True)
    search_text = TextField()
    positions = JSONTextField(default=list)
    important_keywords = JSONTextField(default=list)
    questions = JSONTextField(default=list)
    available = IntegerField(default=1)
    create_time = BigIntegerField(default=0)


ROWS: tuple[type[Row], ...] = (
    Tenant, Dialog, Conversation, API4Conversation, ChatChannel, ApiToken, Run, RunEvent, MessageIndex,
    Dataset, DatasetDocument, DatasetFile, DatasetChunk,
)


def _place(opened: Pool) -> None:
    for row in ROWS:
        row._meta.schema = opened.schema


database.attach_callback(_place)
