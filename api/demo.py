"""The demo: a chat over the project's own documents, so that a first question has something to find."""

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import quote

from db.jsontext import clean_text
from db.models import Dialog
from services.api_tokens import DEFAULT_TENANT, ApiTokenService, TenantService, digest
from services.dialog_service import DEFAULT_SYSTEM, DialogService
from services.errors import Unauthorized
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.models import DEFAULT, model_id
from services.principal import Principal

DATASET = "Chatkeep's documents"
CHAT = "Chatkeep"
TOKEN_FILE = Path("var/demo-token")  # the default tenant's; another one's has the tenant's name behind it
QUESTION = "How do I connect to PostgreSQL?"


def documents() -> Iterator[tuple[str, str]]:
    """Name and text of each document: from the package, or from the checkout it runs in."""
    packaged = files("api") / "documents"
    root: Traversable = packaged if packaged.is_dir() else Path(__file__).parent.parent
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        yield name, (root / name).read_text("utf-8")
    yield from _markdown(root / "docs", "docs")


def _markdown(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _markdown(item, f"{prefix}/{item.name}")
        elif item.name.endswith(".md"):
            yield f"{prefix}/{item.name}", item.read_text("utf-8")


def ensure_demo(principal: Principal) -> tuple[Dialog, str]:
    """The demo chat with up-to-date documents, and its token, which is kept in the tenant's file, of mode 0600."""
    dataset = DatasetService.ensure(principal, DATASET)
    for name, text in documents():
        add_text(principal, dataset.id, name, text, location=name)
    found = DialogService.get_list(principal, name=CHAT).rows
    dialog = found[0] if found else DialogService.create(principal, _chat(dataset.id))
    return dialog, ensure_token(principal)


def _chat(dataset_id: str) -> dict[str, object]:
    return {
        "name": CHAT, "description": "Answers from the project's own documents", "icon": "",
        "llm_id": model_id(DEFAULT), "tenant_llm_id": model_id(DEFAULT), "kb_ids": [dataset_id],
        "prompt_config": {
            "system": DEFAULT_SYSTEM, "prologue": "Hi! Ask me about Chatkeep.", "empty_response": "",
            "quote": True, "parameters": [{"key": "knowledge", "optional": False}],
        },
    }


def token_file(tenant: str) -> Path:
    """Where the demo keeps this tenant's token: a name that every file system takes, whatever the tenant's is."""
    if tenant == DEFAULT_TENANT:
        return TOKEN_FILE
    named = quote(tenant, safe="")
    return TOKEN_FILE.with_name(f"{TOKEN_FILE.name}-{named if len(named) <= 100 else digest(tenant)}")


def ensure_token(principal: Principal) -> str:
    """The token in the tenant's file, if it is good for this database; else a new one in its place.

    What stood there may be another database's, and in use: it stays valid there, as does every token that a demo made.
    """
    path = token_file(TenantService.get(principal).name)
    if path.exists():
        kept = path.read_text("utf-8").strip()
        with suppress(Unauthorized):
            if ApiTokenService.authenticate(kept) == principal:
                return kept
    _, secret = ApiTokenService.create(principal, clean_text(f"demo, in {path.resolve()}")[-255:])
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)  # a file that is there keeps its mode otherwise
        file.write(secret + "\n")
    return secret
