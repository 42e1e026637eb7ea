"""The house keeps its rules: each sentence of CONTRIBUTING.md about the code is proven here."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("api", "services", "db", "conf")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ALLOWED_IMPORTERS = {
    "flask": {"api"}, "werkzeug": {"api"}, "prometheus_client": {"api"},
    "openai": {"services/rag/chat_models.py", "services/rag/embeddings.py"},
    "ag_ui": {"services/agui"},
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def strings_of(path: Path) -> Iterator[str]:
    """Every text of a module but its docstrings; the literal parts of formatted ones too."""
    tree = ast.parse(path.read_text("utf-8"))
    documented = {
        id(node.body[0].value) for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def calls_of(path: Path, name: str) -> bool:
    tree = ast.parse(path.read_text("utf-8"))
    return any(
        isinstance(node, ast.Call)
        and (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)) == name
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize("library", ALLOWED_IMPORTERS)
def test_a_library_is_imported_in_its_own_room_only(library):
    importers = {name_of(path) for path in SOURCES if any(
        module == library or module.startswith(f"{library}.") for module in imports_of(path)
    )}
    rooms = ALLOWED_IMPORTERS[library]
    assert not {name for name in importers if not any(name == room or name.startswith(f"{room}/") for room in rooms)}


def test_imports_point_one_way():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    ) if Path(sys.executable).with_name("lint-imports").exists() else None
    order = {package: place for place, package in enumerate(PACKAGES)}
    upward = [
        (name_of(path), module) for path in SOURCES for module in imports_of(path)
        if (room := module.split(".")[0]) in order and order[room] < order[name_of(path).split("/")[0]]
    ]
    assert not upward
    assert done is None or done.returncode == 0, done.stdout


def test_only_the_document_writes_its_columns():
    write = re.compile(r"\b(SET|INSERT INTO)\b.*\b(message|reference)\b(?! =)", re.DOTALL)
    writers = {
        name_of(path) for path in SOURCES if "migrations" not in name_of(path)
        and any(write.search(text) and "message_index" not in text for text in strings_of(path))
    }
    assert writers and all(name.startswith("db/document/") for name in writers), writers


def test_only_the_document_knows_of_pages():
    knowing = {
        name_of(path) for path in SOURCES if "migrations" not in name_of(path)
        and any("_page" in text and "page_" not in text for text in strings_of(path))
    }
    assert all(name.startswith("db/document/") or name == "db/database.py" for name in knowing), knowing


def test_only_one_module_makes_answers_and_their_slots():
    makers = {
        name_of(path) for path in SOURCES
        if any((isinstance(node, ast.Dict) and {"message_id", "chunks"} <= _keys(node))
               or (isinstance(node, ast.Dict) and "finish_reason" in _keys(node) and "content" in _keys(node))
               for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    }
    assert makers <= {"services/structure_answer.py", "db/legacy.py"}, "db/legacy.py mends other systems' slots"
    assert "services/structure_answer.py" in makers


def _keys(node: ast.Dict) -> set[str]:
    return {key.value for key in node.keys if isinstance(key, ast.Constant)}


def test_only_one_module_frames_events_for_the_wire():
    framing = {name_of(path) for path in SOURCES if any(
        (isinstance(node, ast.Constant) and node.value in (b"%sdata:%s\n\n", "text/event-stream; charset=utf-8"))
        or (isinstance(node, ast.Constant) and isinstance(node.value, bytes) and b"data:" in node.value)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )}
    assert framing == {"api/sse.py"}


def test_importing_everything_starts_nothing(tmp_path):
    modules = ", ".join(
        name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in SOURCES if "migrations/0" not in name_of(path)
    )
    script = (
        f"import threading, os, {modules}\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not os.listdir('.'), os.listdir('.')\n"
        "from db.database import database\nassert database.obj is None\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CHATKEEP_DATABASE_URL": "nonsense"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env=environment)


def test_the_broad_except_stands_at_the_outermost_catch_only():
    catching = [
        name_of(path) for path in SOURCES for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
    ]
    assert catching == ["services/runs/workers.py"]


def test_no_import_hides_in_a_function():
    hidden = [
        (name_of(path), node.lineno) for path in SOURCES for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef) for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not hidden


def test_the_longest_files_and_functions_are_known():
    files = sorted(((len(path.read_text("utf-8").splitlines()), name_of(path)) for path in SOURCES), reverse=True)
    functions = sorted(
        ((node.end_lineno - node.lineno + 1, f"{name_of(path)}:{node.name}")
         for path in SOURCES for node in ast.walk(ast.parse(path.read_text("utf-8")))
         if isinstance(node, ast.FunctionDef)), reverse=True,
    )
    for title, measured in (("longest files", files), ("longest functions", functions)):
        print(f"\n{title}")
        for lines, name in measured[:6]:
            print(f"  {lines:4} {name}")
    assert functions[0][0] <= 45
    middle = functions[len(functions) // 2][0]
    assert middle <= 10, f"half of the functions have more than {middle} lines"
