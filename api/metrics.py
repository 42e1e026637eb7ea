"""The numbers of one process as Prometheus reads them: what happened is counted, what is so is looked up when asked.

Labels are bounded: a route is its template, everything else a word of a closed list. Nothing here asks the database.
"""

import platform
from collections.abc import Iterator

from peewee import IntegrityError, InterfaceError, OperationalError, QueryEvent
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from conf import __version__
from db.database import Pool
from services.events import ErrorCode
from services.knowledge.ingestion import Ingestion, Parsed
from services.observer import Observer
from services.runs.live import NotStored
from services.runs.values import Outcome
from services.runs.workers import Workers

_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_OPERATIONS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "BEGIN")


def method_label(method: str) -> str:
    """A method that exists; a client may send any word."""
    return method if method in _METHODS else "other"


class Metrics(Observer):
    """A registry of its own, so that several applications may stand in one process."""

    def __init__(self, pool: Pool) -> None:
        self.registry = CollectorRegistry()
        self._count_requests()
        self._count_runs()
        self._count_documents()
        self._count_database(pool)
        ProcessCollector(registry=self.registry)
        Info("chatkeep_build", "What is running.", registry=self.registry).info(
            {"version": __version__, "python": platform.python_version(), "database": pool.dialect.name}
        )

    def watch(self, workers: Workers, ingestion: Ingestion) -> None:
        """What is looked up when asked."""
        self._runs_active.set_function(lambda: workers.active)
        self._runs_queued.set_function(lambda: workers.waiting)
        self._journal_lag.set_function(lambda: workers.unwritten_for)
        self._documents_waiting.set_function(lambda: ingestion.waiting)

    def exposition(self, **labels: str) -> bytes:
        """All of it as text, with these labels on each line."""
        return generate_latest(_Told(self.registry, labels))

    def request_ended(self, method: str, route: str, status: int, code: int, seconds: float) -> None:
        self._requests.labels(method, route, status, code).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    def deltas_written(self, count: int) -> None:
        self._deltas.inc(count)

    def journal_written(self, delay: float) -> None:
        self._journal_delay.observe(delay)

    def run_ended(self, outcome: str, error_code: str | None = None, first_token: float | None = None) -> None:
        self._runs.labels(outcome, error_code or "").inc()
        if first_token is not None:
            self._first_token.observe(first_token)

    def document_ended(self, result: str) -> None:
        self._documents.labels(result).inc()

    def document_lease_lost(self) -> None:
        self._leases_lost.inc()

    def _count_requests(self) -> None:
        self._requests = self._counter("http_requests", "Requests answered to their end.",
                                       "method", "route", "status", "code")
        self._request_seconds = self._histogram(
            "http_request_seconds", "Until the last byte of the answer, a stream's too.", _SLOW, "method", "route"
        )
        self.bugs = self._counter("bugs", "Requests that ended by an unforeseen exception.")
        self.open_streams = self._gauge("streams_open", "Streams that somebody reads.")

    def _count_runs(self) -> None:
        self._runs = self._counter("runs", "Runs that ended here.", "outcome", "error_code")
        for outcome in (*Outcome, *NotStored):  # an increase from nothing is none
            if outcome is not Outcome.ERROR:
                self._runs.labels(outcome, "")
        for code in ErrorCode:
            self._runs.labels(Outcome.ERROR, code)
        self._runs_active = self._gauge("runs_active", "Runs that are answered now.")
        self._runs_queued = self._gauge("runs_queued", "Questions that wait for their session's turn.")
        self._first_token = self._histogram("run_first_token_seconds", "From a run's start to its first text.", _SLOW)
        self._deltas = self._counter("run_deltas", "Pieces of answers that are on disk.")
        self._journal_delay = self._histogram(
            "journal_commit_delay_seconds", "At each commit, since the oldest event in it was said.", _QUICK
        )
        self._journal_lag = self._gauge("journal_lag_seconds", "How long the oldest event waits that isn't on disk.")

    def _count_documents(self) -> None:
        self._documents = self._counter("documents", "Documents whose parsing ended here.", "result")
        for result in Parsed:
            self._documents.labels(result)
        self._documents_waiting = self._gauge("documents_waiting", "Documents of all servers that nobody parses yet.")
        self._leases_lost = self._counter("document_leases_lost", "Documents begun anew: their parser fell silent.")

    def _count_database(self, pool: Pool) -> None:
        self._gauge("database_connections_in_use", "Connections held now.").set_function(lambda: pool.in_use)
        self._gauge("database_connections_max", "Connections that there may be.").set(pool.size)
        waits = self._histogram("database_wait_seconds", "Waits for a connection of a full pool.", _QUICK)
        pool.wait_hooks.append(waits.observe)
        seconds = self._histogram("sql_seconds", "Statements.", _QUICK, "operation")
        operations = {word: seconds.labels(word.lower()) for word in _OPERATIONS}
        other = seconds.labels("other")
        errors = self._counter("sql_errors", "Statements that failed.", "error")
        for usual in (OperationalError, InterfaceError, IntegrityError):
            errors.labels(usual.__name__)

        def count(event: QueryEvent) -> None:
            operations.get(event.sql.split(maxsplit=1)[0], other).observe(event.duration)
            if event.exception is not None:
                errors.labels(type(event.exception).__name__).inc()

        pool.query_hooks.append(count)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"chatkeep_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"chatkeep_{name}", meaning, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"chatkeep_{name}", meaning, labels, registry=self.registry, buckets=buckets)


class _Told(Collector):
    """A registry's families with more labels, and without the times at which each series began."""

    def __init__(self, registry: CollectorRegistry, labels: dict[str, str]) -> None:
        self._registry, self._labels = registry, labels

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [
                sample._replace(labels={**sample.labels, **self._labels}) for sample in family.samples
                if not sample.name.endswith("_created")
            ]
            yield family
