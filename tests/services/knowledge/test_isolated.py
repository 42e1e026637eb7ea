"""A file that hangs, crashes or fills the process that reads it costs that process and nothing else."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from services.knowledge.parsing import Passage, ReaderProcesses, Unreadable, read
from tests.processes import ROOT
from tests.services.knowledge.documents import inflated, outlined

LONG = b"<p>words and <b>more</b> words</p>" * 300_000  # takes a few seconds


@pytest.fixture
def readers() -> Iterator[ReaderProcesses]:
    before = set(psutil.Process().children())
    readers = ReaderProcesses()
    yield readers
    readers.close()
    assert not set(psutil.Process().children()) - before, "no process stays behind, dead or alive"


def children(of: int | None = None) -> list[psutil.Process]:
    return [child for child in psutil.Process(of).children()
            if child.status() != psutil.STATUS_ZOMBIE and "services.knowledge.parsing.child" in child.cmdline()]


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def when_busy(act: Callable[[psutil.Process], None]) -> threading.Thread:
    """Do something to a process as soon as it reads a long document."""

    def wait() -> None:
        wait_for(lambda: any(child.num_threads() > 1 for child in children()))
        [child] = children()
        begun = child.cpu_times().user
        wait_for(lambda: child.cpu_times().user > begun + 0.3)
        act(child)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_reads_what_the_same_process_would(readers):
    book = outlined([("A", 0, "text")])
    for name, content in (("x.md", b"# A\n\ntext\n"), ("x.html", b"<h1>A</h1>text"), ("x.pdf", book)):
        assert readers.read(name, content) == read(name, content)


def test_refuses_with_the_same_sentence(readers):
    with pytest.raises(Unreadable, match="The file is empty"):
        readers.read("x.txt", b"")


def test_reads_many_documents_in_one_process(readers):
    readers.read("x.txt", b"first")
    [child] = children()
    for number in range(500):
        assert readers.read("x.txt", b"number %d" % number) == [Passage(f"number {number}")]
    assert children() == [child]


def test_serves_many_threads_with_few_processes(readers):
    with ThreadPoolExecutor(16) as threads:
        found = threads.map(lambda number: readers.read("x.md", b"# T\n\nnumber %d" % number), range(200))
        assert [passages[0].content for passages in found] == [f"# T\n\nnumber {number}" for number in range(200)]
    assert 1 <= len(children()) <= 2


def test_gives_the_process_no_credentials(readers, monkeypatch):
    monkeypatch.setenv("CHATKEEP_MODEL_API_KEY", "secret")
    readers.read("x.txt", b"text")
    [child] = children()
    assert "secret" not in str(child.environ())


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_process_that_died_between_two_documents_is_replaced(readers, sent):
    readers.read("x.txt", b"text")
    [child] = children()
    child.send_signal(sent)
    wait_for(lambda: child.status() == psutil.STATUS_ZOMBIE)
    assert readers.read("x.txt", b"text") == [Passage("text")]


def test_ends_a_process_that_hangs(readers):
    readers.read("x.txt", b"text")
    [child] = children()
    child.send_signal(signal.SIGSTOP)
    for content in (b"text", b"x" * 5_000_000):  # the second one doesn't even fit into the socket
        begun = time.monotonic()
        with pytest.raises(Unreadable, match=r"longer than 0.5 s"):
            readers.read("x.txt", content, seconds=0.5)
        assert time.monotonic() - begun < 5 and not child.is_running()
        readers.read("x.txt", b"text")
        [child] = children()
        child.send_signal(signal.SIGSTOP)
    child.kill()


def test_ends_reading_when_the_time_is_up(readers):
    with pytest.raises(Unreadable, match=r"longer than 0.3 s"):
        readers.read("x.html", LONG, seconds=0.3)
    assert not children()
    assert readers.read("x.txt", b"text") == [Passage("text")]


@pytest.mark.parametrize(("sent", "reason"), [(signal.SIGSEGV, "damaged"), (signal.SIGKILL, "memory")])
def test_a_file_that_ends_its_process_is_refused(readers, sent, reason):
    thread = when_busy(lambda child: child.send_signal(sent))
    with pytest.raises(Unreadable, match=reason):
        readers.read("x.html", LONG)
    thread.join()
    assert readers.read("x.txt", b"text") == [Passage("text")]


def test_a_file_isnt_to_blame_for_a_process_that_read_others(readers):
    readers.read("x.txt", b"text")
    thread = when_busy(lambda child: child.send_signal(signal.SIGSEGV))
    assert len(readers.read("x.html", LONG)) > 1000
    thread.join()


@pytest.mark.parametrize(("name", "content"), [
    ("x.pdf", inflated(300)), ("x.html", LONG), ("x.md", b"- x\n" * 1_000_000),
])
def test_a_file_that_fills_the_memory_is_refused_and_ours_stays_as_it_is(readers, name, content):
    readers.read("x.txt", b"text")
    before = psutil.Process().memory_info().rss
    with pytest.raises(Unreadable, match="more than 60 MB of memory"):
        readers.read(name, content, megabytes=60)
    assert psutil.Process().memory_info().rss < before + 30_000_000
    assert readers.read("x.txt", b"text") == [Passage("text")]


def test_a_process_that_kept_much_memory_reads_no_more(readers):
    readers.read("x.html", LONG)
    assert not children()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forgets_the_processes_of_the_one_it_was_forked_from(readers):
    readers.read("x.txt", b"text")
    forked = os.fork()
    if not forked:
        try:
            found = readers.read("x.txt", b"forked")
            has_its_own = len(children()) == 1
            readers.close()
            os._exit(0 if has_its_own and found == [Passage("forked")] else 2)
        finally:
            os._exit(1)
    assert os.waitpid(forked, 0)[1] == 0
    assert readers.read("x.txt", b"ours") == [Passage("ours")]


PARENT = """
import os, sys, time
from services.knowledge.parsing import ReaderProcesses
readers = ReaderProcesses()
readers.read("x.txt", b"text")
if sys.argv[1] == "held" and not os.fork():
    time.sleep(60)  # with the socket in its hands
print("ready", flush=True)
if sys.argv[1] == "held":
    readers.read("x.html", b"<p>words and <b>more</b> words</p>" * 600_000, seconds=3)
if sys.argv[1] == "busy":
    readers.read("x.html", b"<p>words and <b>more</b> words</p>" * 600_000)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["idle", "busy", "held"])
def test_no_process_outlives_the_one_that_asked(state, tmp_path):
    for name in ("services", "conf"):  # a user's own modules aren't taken for ours
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError\n")
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT, state], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout.readline() == b"ready\n"
        [child] = children(parent.pid)
        holding = [other for other in psutil.Process(parent.pid).children() if other != child]
        begun = child.cpu_times().user
        if state != "idle":
            wait_for(lambda: child.cpu_times().user > begun + 0.3)
        parent.kill()
        parent.wait()
        wait_for(lambda: not child.is_running())
        for other in holding:
            other.kill()
