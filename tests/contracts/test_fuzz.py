"""Requests made from the OpenAPI document, sound and unsound ones: no answer breaks what the document promises.

FUZZ_REQUESTS are sent to each database, or as many as fit into FUZZ_SECONDS; FUZZ_SEED makes others of them.
"""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import one_of
from schemathesis import Case, GenerationMode

from api.described import EXAMPLE_IDS
from tests.contracts.example_world import World
from tests.contracts.judging import SECONDS, Answer, Findings, Judge, Timed, bad_manners
from tests.contracts.shared_server import app, models, overrides  # noqa: F401

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "2000"))
LIMIT = float(os.environ.get("FUZZ_SECONDS", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))

# Where a body may name what is there: its keys of these names.
KNOWN = EXAMPLE_IDS | {
    "conversation_id": EXAMPLE_IDS["session_id"], "model": EXAMPLE_IDS["chat_id"],
    "dataset_ids": [EXAMPLE_IDS["dataset_id"]], "document_ids": [EXAMPLE_IDS["document_id"]],
    "chunk_ids": [EXAMPLE_IDS["chunk_id"]], "doc_ids": [EXAMPLE_IDS["document_id"]],
}
# Why a request may be refused that its schema allows: what no schema says, and what isn't there.
UNSAID = re.compile(
    r"64 bits|nested deeper|bytes; at most|must be from user|must contain a user message|not from user"
    r"|length is \d+ which is larger|must be true when|stands for two questions|stored with other content"
    r"|not found|own |no authorization|does not exist|doesn't exist|there is no|has no |isn't set up|does not belong"
    r"|doesn't have|Failed to delete|must be a valid tenant model id|not an empty one"
    r"|Cannot use specified model|is required when|contains duplicate key|must refer to the same model"
    r"|a dataset has one of a name"
)


@dataclass
class Fuzzer:
    """Sends requests and collects what is wrong with their answers."""

    world: World
    judge: Judge
    timed: Timed
    deadline: float
    random: Random = field(default_factory=lambda: Random(SEED))
    sent: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)

    def run(self, operations: list[Any], count: int) -> None:
        """`count` requests: the edges of each operation's schema first, as far as half of them go, then at random."""
        for operation in operations:
            self._edges(operation, count // 2 // len(operations))
        for seed in range(SEED, SEED + 100):
            left = count - sum(self.sent.values())
            if left <= 0 or time.monotonic() > self.deadline:
                break
            for operation in operations:  # those without parameters have a handful of requests only
                self._at_random(operation, left // len(operations) + 1, seed)
            operations = [each for each in operations if each.body or each.query]

    def _edges(self, operation: Any, count: int) -> None:
        schema = operation.schema
        cases = list(schema.iter_coverage_cases(
            operation, generation_modes=list(GenerationMode),
            generation_config=schema.config.generation_for(operation=operation, phase="coverage"),
        ))
        for case in self.random.sample(cases, min(len(cases), count)):
            self.send(case)

    def _at_random(self, operation: Any, count: int, seed: int) -> None:
        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=count, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode)))
        def send(case: Case) -> None:
            self.send(case)

        send()

    def send(self, case: Case) -> None:
        if time.monotonic() > self.deadline:
            return
        self._name_what_is_there(case)
        answer = self._answer(case)
        if answer.seconds > SECONDS:  # a busy machine, or a slow input?
            answer = self._answer(case)
        self.sent[answer.verdict] += 1
        shown = f"{case.as_curl_command()[:1500]}\n  {answer.text[:500]}"
        self.findings.note(case.operation.label, self._faults(case, answer), shown)
        if case.method != "GET":
            self.world.restore()
        if sum(self.sent.values()) % 500 == 0:
            self.world.tidy()

    def _faults(self, case: Case, answer: Answer) -> Iterator[str]:
        path, method = case.operation.path, case.operation.method
        if case.method != method.upper():
            yield from bad_manners(path, answer)
        else:
            yield from self.judge.faults(path, method, answer)
            yield from refused_soundness(case, answer)

    def _answer(self, case: Case) -> Answer:
        response = case.call(app=self.timed, headers=self.world.headers)
        media = (response.headers.get("content-type") or [""])[0].partition(";")[0]
        text = response.content.decode(errors="replace")
        return Answer(response.status_code, media, text, self.timed.seconds)

    def _name_what_is_there(self, case: Case) -> None:
        """Most requests name rows that exist, so that more than refusals is tried."""
        for part in (case.path_parameters, case.body, case.query):
            if isinstance(part, dict):
                for name in sorted(part.keys() & KNOWN.keys()):
                    if self.random.random() < 0.7:
                        part[name] = KNOWN[name]
        name = case.body.get("name") if isinstance(case.body, dict) else None
        if isinstance(name, str) and name.strip():  # unlike any other's, and no longer than it was
            case.body["name"] = f"{name[:-6]}{sum(self.sent.values()):06}"


def refused_soundness(case: Case, answer: Answer) -> Iterator[str]:
    """A request that the document allows is refused only for what no schema can say."""
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE or answer.is_elsewhere:
        return
    if answer.verdict in ("101", "102", "400", "422") and not UNSAID.search(answer.text):
        yield f"a sound request is refused: {answer.text[:100]}"


@pytest.mark.timeout(LIMIT + 300)
def test_no_request_made_from_the_document_breaks_its_promises(app):
    document = app.test_client().get("/openapi.json").get_json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(with_security_parameters=False)
    fuzzer = Fuzzer(World.of(app), Judge(document), Timed(app), time.monotonic() + LIMIT)
    fuzzer.run([found.ok() for found in schema.get_all_operations()], REQUESTS)
    print(f"\n{sum(fuzzer.sent.values())} requests: {fuzzer.sent.most_common()}")
    assert not fuzzer.findings.found, str(fuzzer.findings)
