"""What the services tell of their work to whoever counts. They don't know who that is."""


class Observer:
    """One that counts nothing. Methods are called from many threads, and none too often: never once a delta."""

    def deltas_written(self, count: int) -> None:
        """So many deltas of a run are on disk."""

    def journal_written(self, delay: float) -> None:
        """A commit of the journal, `delay` seconds after the oldest event in it was said."""

    def run_ended(self, outcome: str, error_code: str | None = None, first_token: float | None = None) -> None:
        """A run is over, `first_token` seconds after its start had it said something; None if it never did."""

    def document_ended(self, result: str) -> None:
        """Parsing a document is over: done, failed, lost (taken away meanwhile) or postponed."""

    def document_lease_lost(self) -> None:
        """A document is begun anew, since whoever parsed it fell silent."""
