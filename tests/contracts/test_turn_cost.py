"""What a turn asks of the database."""

import time
from typing import Any

import pytest

from tests.conftest import Person
from tests.contracts.wire import ask, stream
from tests.fakes import ScriptedModel, says
from tests.statements import Heard, listening

STATEMENTS, COMMITS = 10, 3


def turn(alice: Person, chat: Any, session: Any, model: ScriptedModel, idle: float = 0.0) -> Heard:
    """One streamed turn of a session that has some, `idle` seconds after the one before."""
    for n in range(3):
        ask(alice, chat, f"question {n}", session)
    model.script("how much?", lambda: says(*["word "] * 50))
    time.sleep(idle)
    with listening() as heard:
        assert stream(alice, chat, "how much?", session)[-1] is True
    return heard


@pytest.mark.parametrize("idle", [0.0, 1.2], ids=["busy", "idle"])
def test_a_turn_costs_at_most_ten_statements_and_three_commits_beyond_the_journal(
    alice, chat, session, model, idle: float
) -> None:
    heard = turn(alice, chat, session, model, idle)
    assert len(heard.beyond_the_journal) <= STATEMENTS, heard.beyond_the_journal
    assert heard.commits <= COMMITS


