"""Every command says what it does, with examples that its own parser takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from api.cli import main

_EXAMPLES = re.compile(r"^  Examples?:(?: .*\n)+", re.MULTILINE)


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every command and group, `()` for `chatkeep` itself."""
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


PATHS = list(commands(main))


def examples(text: str) -> list[list[str]]:
    """The words behind each `chatkeep` in a help text's examples."""
    return [
        shlex.split(call.partition("chatkeep ")[2]) for block in _EXAMPLES.findall(text)
        for line in block.splitlines() for call in line.split("&&")
    ]


def parse(arguments: list[str]) -> list[str]:
    """The path of the command that these words call; click's UsageError where it doesn't take them."""
    context = click.Context(main, info_name="chatkeep")
    command: click.Command = main
    path: list[str] = []
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert name is not None and found is not None
        path.append(name)
        command = found
    command.make_context(path[-1], list(arguments), parent=context)
    return path


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files that examples name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    for name in ("docs/a.md", "FILE.pdf", "chatkeep.backup"):
        (tmp_path / name).touch()


def as_a_shell_would(words: list[str]) -> list[str]:
    return [path for word in words for path in (map(str, sorted(Path().glob(word))) if "*" in word else [word])]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_has_an_example_that_parses(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*path, "--help"], terminal_width=200)
    assert done.exit_code == 0
    found = examples(done.output)
    assert found, done.output
    called = [parse(as_a_shell_would(words)) for words in found]
    assert any(tuple(call[: len(path)]) == path for call in called), "an example of another command"


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_is_sentences_with_every_option_explained(path: tuple[str, ...]) -> None:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    assert (command.help or "").split("\n\n")[0].rstrip().endswith("."), command.help
    for option in command.params:
        assert not isinstance(option, click.Option) or (option.help or "").endswith((".", ")")), option.name


def test_an_embed_token_is_said_to_open_nothing_yet_and_is_no_example() -> None:
    shown = CliRunner().invoke(main, ["token", "create", "--help"], terminal_width=200).output
    assert "no route takes one yet" in shown
    assert not any("--embed" in words for words in examples(shown))


def test_an_unknown_command_or_option_is_exit_code_2() -> None:
    for words in (["nope"], ["token", "nope"], ["doctor", "--nope"], ["backup"]):
        assert CliRunner().invoke(main, words).exit_code == 2
