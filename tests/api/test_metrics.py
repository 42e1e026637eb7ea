"""The numbers at /metrics are those of what happened, under labels that no client can add to."""

import threading
from contextlib import closing
from io import BytesIO

import pytest
from peewee import PeeweeException
from prometheus_client.parser import text_string_to_metric_families

from db.database import connection, database
from services.api_tokens import ApiTokenService
from services.events import ErrorCode
from services.principal import Principal
from tests.contracts.wire import ask, body, later, path, stream
from tests.fakes import Gate, fails, says
from tests.processes import wait_until


class Numbers:
    """A scrape: `numbers(name, label=value)` is the sum of the series that have these labels."""

    def __init__(self, app):
        reply = app.test_client().get("/metrics")
        assert (reply.status_code, reply.mimetype) == (200, "text/plain")
        self.samples = [sample for family in text_string_to_metric_families(reply.text) for sample in family.samples]

    def __call__(self, name, **labels):
        found = [sample.value for sample in self.samples if sample.name == f"chatkeep_{name}"
                 and labels.items() <= sample.labels.items()]
        return sum(found)


def test_requests_are_counted_by_template_method_status_and_code(app, alice, nobody, chat):
    alice("GET", f"/chats/{chat['id']}")
    alice("GET", "/chats/unknown")
    nobody("GET", "/chats")
    numbers = Numbers(app)
    one = {"method": "GET", "route": "/api/v1/chats/<chat_id>", "status": "200"}
    counted = [numbers("http_requests_total", **one, code=code) for code in ("0", "102", "109")]
    assert (counted[0], sum(counted[1:])) == (1, 1)
    assert numbers("http_requests_total", route="/api/v1/chats", status="401", code="401") == 1
    assert numbers("http_request_seconds_count", route="/api/v1/chats/<chat_id>") == 2


def test_a_streamed_request_is_counted_when_it_is_over(app, alice, chat, model):
    gate = Gate("one ")
    model.script("q", gate)
    with closing(alice("POST", path(chat), body("q"))) as response:
        text = iter(response.response)
        while b"one" not in next(text):
            pass
        numbers = Numbers(app)
        at_work = [numbers(name) for name in ("streams_open", "runs_active", "http_requests_total")]
        gate.opened.set()
        list(text)
    assert at_work[:2] == [1, 1]
    wait_until(lambda: Numbers(app)("runs_active") == 0)
    numbers = Numbers(app)
    assert numbers("streams_open") == 0
    assert numbers("http_requests_total", route="/api/v1/chats/<chat_id>/completions") == 1


@pytest.mark.parametrize("streams", [True, False])
def test_a_run_is_counted_by_its_end_before_its_reader_hears_of_it(app, alice, chat, model, streams):
    model.script("good", lambda: says("one ", "two ", "three"))
    model.script("bad", lambda: fails("one ", code=ErrorCode.TIMEOUT))
    for question in ("good", "bad", "good"):
        if streams:
            stream(alice, chat, question)
        else:
            alice("POST", path(chat), body(question) | {"stream": False})
    numbers = Numbers(app)
    assert numbers("runs_total", outcome="success", error_code="") == 2
    assert numbers("runs_total", outcome="error", error_code="TIMEOUT") == 1
    assert numbers("runs_total") == 3
    assert (numbers("run_deltas_total"), numbers("run_first_token_seconds_count")) == (7, 3)


def test_a_cancelled_run_and_one_whose_session_is_deleted_have_outcomes_of_their_own(app, alice, chat, session, model):
    for n, outcome in enumerate(("cancelled", "deleted")):
        gate = Gate("one ")
        model.script(f"q{n}", gate)
        asked = later(lambda n=n: ask(alice, chat, f"q{n}", session) and None)
        assert gate.reached.wait(10)
        where = f"/chats/{chat['id']}/sessions"
        if outcome == "cancelled":
            [run] = alice.ok("GET", f"{where}/{session['id']}/runs?status=active")
            alice.ok("POST", f"/runs/{run['id']}/cancel")
        else:
            alice.ok("DELETE", where, {"ids": [session["id"]]})
        wait_until(lambda outcome=outcome: Numbers(app)("runs_total", outcome=outcome) == 1)
        gate.opened.set()
        asked.exception(20)
    assert Numbers(app)("runs_total") == 2


def test_a_waiting_question_is_queued(app, alice, chat, session, model):
    gate = Gate()
    model.script("q", gate)
    first = later(lambda: ask(alice, chat, "q", session))
    assert gate.reached.wait(10)
    second = later(lambda: ask(alice, chat, "next", session))
    wait_until(lambda: Numbers(app)("runs_queued") == 1)
    gate.opened.set()
    assert [asked.result(20)["answer"] for asked in (first, second)] == ["done", "You said: next"]
    assert Numbers(app)("runs_queued") == 0


def test_the_journal_tells_its_delay_and_has_no_lag_at_rest(app, alice, chat, model):
    gate = Gate("one ")
    model.script("q", gate)
    asked = later(lambda: ask(alice, chat, "q"))
    wait_until(lambda: Numbers(app)("journal_commit_delay_seconds_count") >= 1)
    gate.opened.set()
    asked.result(20)
    numbers = Numbers(app)
    assert 0 < numbers("journal_commit_delay_seconds_sum") < 5 * numbers("journal_commit_delay_seconds_count")
    assert numbers("journal_lag_seconds") == 0


@pytest.mark.settings(database={"pool_size": 1, "pool_timeout": 20}, runs={"poll": 10})
def test_a_full_pool_is_seen_and_who_waits_for_it(app, alice, chat):
    most = Numbers(app)("database_connections_max")
    held, leave = threading.Semaphore(0), threading.Event()

    def hold():
        with connection():
            held.release()
            leave.wait(20)

    holders = [threading.Thread(target=hold, daemon=True) for _ in range(int(most))]
    for holder in holders:
        holder.start()
    wait_until(lambda: Numbers(app)("database_connections_in_use") == most)
    asked = later(lambda: alice.ok("GET", "/chats"))
    wait_until(lambda: not asked.done() and Numbers(app)("database_connections_in_use") == most)
    leave.set()
    asked.result(20)
    for holder in holders:
        holder.join(20)
    wait_until(lambda: Numbers(app)("database_connections_in_use") < most)
    assert Numbers(app)("database_wait_seconds_count") >= 1


def test_statements_are_counted_by_their_kind_and_their_failures(app, alice):
    before = Numbers(app)
    alice.ok("GET", "/chats")
    alice.ok("POST", "/chats", {"name": "c"})
    with pytest.raises(PeeweeException), connection():
        database.execute_sql("SELECT nothing")
    after = Numbers(app)
    for operation in ("select", "insert"):
        assert after("sql_seconds_count", operation=operation) > before("sql_seconds_count", operation=operation)
    assert sum(sample.value for sample in after.samples if sample.name == "chatkeep_sql_errors_total") == 1


def test_documents_are_counted_by_result(app, alice):
    dataset = alice.ok("POST", "/datasets", {"name": "docs"})["id"]
    where = f"/datasets/{dataset}"
    for name, content in (("good.txt", b"A pump moves water."), ("bad.pdf", b"%PDF-1.7 broken")):
        [document] = alice.ok("POST", f"{where}/documents", data={"file": (BytesIO(content), name)})
        alice.ok("POST", f"{where}/chunks", {"document_ids": [document["id"]]})
    wait_until(lambda: Numbers(app)("documents_total") == 2)
    assert [Numbers(app)("documents_total", result=result) for result in ("done", "failed")] == [1, 1]


def test_no_client_makes_a_label(app, alice, nobody, chat):
    secret = ApiTokenService.create(Principal(alice.tenant_id))[1]
    paths = ["/nowhere/{}", "/api/v1/chats/{}", "/api/v1/runs/{}", "/api/v1/system/tokens/{}", "/v1/models/{}"]

    def visit(n):
        for where in paths:
            for person in (alice, nobody):
                person.at("GET", where.format(f"{n}-{secret}"))
        alice.at(f"BREW{n}", "/api/v1/chats")
        alice("GET", f"/chats/{chat['id']}/sessions?user_id=visitor{n}")

    visit(0)
    Numbers(app)
    series = {(sample.name, *sample.labels.items()) for sample in Numbers(app).samples}
    for n in range(1, 4):
        visit(n)
    again = {(sample.name, *sample.labels.items()) for sample in Numbers(app).samples}
    assert {series[0] for series in again - series} == set()
    told = app.test_client().get("/metrics").text
    assert not [hidden for hidden in (secret[9:21], chat["id"], alice.tenant_id, "visitor", "BREW") if hidden in told]


def test_a_scrape_asks_the_database_nothing(app):
    Numbers(app)
    asked = []
    database.obj.query_hooks.append(lambda event: asked.append((threading.current_thread().name, event.sql)))
    Numbers(app)
    assert not [sql for thread, sql in asked if thread == threading.current_thread().name]


@pytest.mark.settings(server={"base_path": "/chat", "metrics": True})
def test_the_base_path_stands_before_the_path_and_not_in_the_labels(app, nobody):
    assert nobody.at("GET", "/metrics").status_code == 404
    told = nobody.at("GET", "/chat/metrics").text
    nobody.at("GET", "/chat/healthz")
    assert "chatkeep_build_info{" in told and 'route="/chat' not in nobody.at("GET", "/chat/metrics").text
    assert 'route="/healthz"' in nobody.at("GET", "/chat/metrics").text


@pytest.mark.settings(server={"metrics": False})
def test_the_setting_switches_it_off(nobody):
    reply = nobody.at("GET", "/metrics")
    assert (reply.status_code, reply.get_json()["message"]) == (404, "Not Found: /metrics")
