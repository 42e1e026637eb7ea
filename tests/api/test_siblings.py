"""Several worker processes: whichever is asked for metrics answers for all, each under its number."""

import re
import socket

import pytest

from api.siblings import Siblings, merged


@pytest.fixture
def hired(tmp_path):
    """Make one more worker, which tells its number."""
    made = []

    def hire():
        tell = lambda number: f"# HELP a A.\n# TYPE a gauge\na{{worker=\"{number}\"}} 1\n".encode()  # noqa: E731
        made.append(Siblings(tmp_path, tell))
        return made[-1]

    yield hire
    for worker in made:
        worker.close()


def test_families_of_several_workers_stand_together():
    texts = [b'# HELP a A.\n# TYPE a gauge\na{w="%d"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n' % n for n in range(2)]
    assert merged(texts) == (
        b'# HELP a A.\n# TYPE a gauge\na{w="0"} 1\na{w="1"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\nb 2\n'
    )


def test_any_worker_answers_for_all_and_a_number_is_given_again(hired):
    first, second, third = hired(), hired(), hired()
    assert [worker.number for worker in (first, second, third)] == [0, 1, 2]
    assert {worker.exposition() for worker in (first, second, third)} == {
        b'# HELP a A.\n# TYPE a gauge\na{worker="0"} 1\na{worker="1"} 1\na{worker="2"} 1\n'
    }
    second.close()
    assert re.findall(rb'"(\d)"', first.exposition()) == [b"0", b"2"]
    assert hired().number == 1
    assert re.findall(rb'"(\d)"', third.exposition()) == [b"0", b"1", b"2"]


def test_a_worker_that_was_killed_or_hangs_is_left_out(hired, tmp_path, monkeypatch):
    monkeypatch.setattr("api.siblings._PATIENCE", 0.2)
    worker = hired()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "8.sock"))
        hanging.listen()
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(tmp_path / "9.sock"))
        assert re.findall(rb'"(\d)"', worker.exposition()) == [b"0"]
