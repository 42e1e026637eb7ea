"""A tenant that owns what the OpenAPI document's examples name: a chat, a session with a turn and its run, a
dataset with a document and a passage, a token. What a request took away, `restore` puts back."""

import hashlib
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from flask import Flask

from api.described import EXAMPLE_IDS
from db.database import connection, transaction
from db.document import CONVERSATIONS
from db.ids import new_id
from db.models import (
    ApiToken,
    Conversation,
    Dataset,
    DatasetChunk,
    DatasetDocument,
    DatasetFile,
    Dialog,
    Run,
)
from services.api_tokens import ApiTokenService, TenantService, digest
from services.events import End
from services.knowledge.chunks import count, insert_chunks
from services.knowledge.datasets import lock_dataset
from services.knowledge.parsing import Passage
from services.principal import Principal
from services.structure_answer import Turn, answer_entry, answer_slot
from tests.factories import ConversationFactory, DialogFactory

TEXT = "Passwords are reset on the sign-in page. Whoever forgot the mail address asks the help desk."
CHAT, SESSION, MESSAGE, RUN, DATASET, DOCUMENT, CHUNK, TOKEN = EXAMPLE_IDS.values()


@dataclass
class World:
    """The app, the tenant and the secret of one of its tokens, which no request revokes for long."""

    app: Flask
    tenant_id: str
    secret: str

    @classmethod
    def of(cls, app: Flask) -> "World":
        principal = Principal(TenantService.ensure(f"examples {new_id()}").id)
        world = cls(app, principal.tenant_id, ApiTokenService.create(principal)[1])
        world.restore()
        return world

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def restore(self) -> None:
        """Put back what is missing, in the order of who owns whom."""
        with connection(), transaction():
            ApiToken.update(revoked_time=None).where(ApiToken.tenant_id == self.tenant_id).execute()
            for row, id, make in (
                (ApiToken, TOKEN, self._token), (Dataset, DATASET, self._dataset),
                (DatasetDocument, DOCUMENT, self._document), (DatasetChunk, CHUNK, self._chunk),
                (Dialog, CHAT, self._chat), (Conversation, SESSION, self._session), (Run, RUN, self._run),
            ):
                if not row.select(row.id).where(row.id == id, *_valid(row)).exists():
                    make()
            if CONVERSATIONS.find_turn(self.tenant_id, SESSION, MESSAGE) is None:
                self._turn()

    def tidy(self) -> None:
        """Take away what requests have made, so that it stays a small world."""
        mine = {row: row.tenant_id == self.tenant_id for row in (ApiToken, Conversation, Dataset, Dialog, Run)}
        with connection():
            sessions = [row.id for row in Conversation.select(Conversation.id).where(mine[Conversation])]
            if sessions:
                CONVERSATIONS.delete(self.tenant_id, sessions)
            for row in (Dataset, Dialog, Run):
                row.delete().where(mine[row]).execute()
            ApiToken.delete().where(mine[ApiToken], ApiToken.token != digest(self.secret)).execute()
        self.restore()

    def _token(self) -> None:
        ApiToken.create(id=TOKEN, tenant_id=self.tenant_id, token=new_id(), prefix="chatkeep-test")

    def _dataset(self) -> None:
        Dataset.create(id=DATASET, tenant_id=self.tenant_id, name=f"handbook {new_id()}")

    def _document(self) -> None:
        lock_dataset(Principal(self.tenant_id), DATASET)  # before what is in it, as everybody does
        made = DatasetDocument.create(
            id=DOCUMENT, tenant_id=self.tenant_id, dataset_id=DATASET, name=f"{new_id()}.md", size=len(TEXT),
            digest=hashlib.sha256(TEXT.encode()).hexdigest(), run="DONE", progress=1,
        )
        DatasetFile.create(document_id=DOCUMENT, content=TEXT.encode())
        count(made, 0, 1)

    def _chunk(self) -> None:
        lock_dataset(Principal(self.tenant_id), DATASET)
        document = DatasetDocument.get_by_id(DOCUMENT)
        insert_chunks(document, [Passage(TEXT)], id=CHUNK)
        count(document, 1)

    def _chat(self) -> None:
        Dialog.delete().where(Dialog.id == CHAT).execute()
        DialogFactory(id=CHAT, tenant_id=self.tenant_id, kb_ids=[DATASET], name=f"support {new_id()}")

    def _session(self) -> None:
        ConversationFactory(id=SESSION, tenant_id=self.tenant_id, dialog_id=CHAT)

    def _run(self) -> None:
        Run.create(
            id=RUN, tenant_id=self.tenant_id, conversation_id=SESSION, turn_id=MESSAGE, status="complete",
            outcome="success", finish_reason="stop", started_at=1.7e9, ended_at=1.7e9 + 1,
        )

    def _turn(self) -> None:
        turn = Turn([TEXT])
        question = {"role": "user", "content": "How do I reset my password?", "id": MESSAGE, "uid": new_id()}
        CONVERSATIONS.append(
            self.tenant_id, SESSION, [question, answer_entry(turn, MESSAGE, RUN, End())], [answer_slot(turn, MESSAGE)]
        )


def _valid(row: Any) -> list[Any]:
    return [row.status == "1"] if row is Dialog else []


def request_of(path: str, method: str, operation: Any) -> dict[str, Any]:
    """What the document's examples say of an operation, as the test client's arguments."""
    for parameter in operation["parameters"]:
        path = path.replace("{%s}" % parameter["name"], str(parameter.get("example")))
    content = operation.get("requestBody", {}).get("content", {})
    body = {"json": content["application/json"]["example"]} if "application/json" in content else {}
    files = {"data": {"file": (BytesIO(TEXT.encode()), "handbook.md")}} if "multipart/form-data" in content else {}
    return {"path": path, "method": method.upper()} | body | files
