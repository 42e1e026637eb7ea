"""Uploads that are broken, too many at once, or name a file twice: each is refused whole, and nobody else suffers."""

import io
import threading
from contextlib import contextmanager

import psycopg2
import pytest
from gunicorn.http.errors import InvalidChunkSize

from db.database import connection, database

FORM = "multipart/form-data; boundary=B"
BODY = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nA pump.\r\n--B--\r\n'


@pytest.fixture
def dataset(alice):
    return alice.ok("POST", "/datasets", {"name": "docs"})["id"]


def names(alice, dataset):
    return sorted(doc["name"] for doc in alice.ok("GET", f"/datasets/{dataset}/documents")["docs"])


def send(person, dataset, *files):
    data = {"file": [(io.BytesIO(content), name) for name, content in files]}
    return person("POST", f"/datasets/{dataset}/documents", data=data, content_type=FORM.partition(";")[0])


@pytest.mark.parametrize(("data", "form"), [
    (BODY[:-8], FORM), (BODY[:70], FORM), (BODY[:-4] + b"\r\n" + BODY[5:-8], FORM), (BODY, FORM[:-1] + "X"),
    (BODY, FORM[:19]), (BODY.replace(b"a.txt", b"\xff.txt"), FORM),
])
@pytest.mark.filterwarnings("ignore:Exception ignored")  # the parser leaves its files to the collector
def test_a_form_that_is_broken_is_refused_whole_in_a_sentence(alice, dataset, data, form):
    answer = alice.refused("POST", f"/datasets/{dataset}/documents", data=data, content_type=form)
    assert (answer[0], "the form could not be read" in answer[1]) == (101, True), answer
    assert names(alice, dataset) == []


def test_a_broken_transfer_is_refused_in_a_sentence(alice, dataset):
    class Broken(io.RawIOBase):
        def readinto(self, buffer):
            raise InvalidChunkSize(b"zz")

    code, message = alice.refused(
        "POST", f"/datasets/{dataset}/documents", content_type=FORM,
        environ_overrides={"wsgi.input": Broken(), "wsgi.input_terminated": True},
    )
    assert (code, "transfer" in message) == (101, True)


@pytest.mark.parametrize("second", ["a.md", "deep/a.md", " a.md "])
def test_two_files_of_one_name_are_refused_since_one_would_be_lost(alice, dataset, second):
    answer = send(alice, dataset, ("a.md", b"one"), (second, b"two")).get_json()
    assert (answer["code"], "'a.md'" in answer["message"]) == (101, True)
    assert names(alice, dataset) == []


@contextmanager
def held(url, dataset):
    """Somebody else has the dataset's row, or SQLite's file, for the block."""
    with connection():
        if url.startswith("sqlite"):
            database.execute_sql("BEGIN IMMEDIATE")
            yield
            database.execute_sql("ROLLBACK")
            return
    with psycopg2.connect(url) as other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM chatkeep.dataset WHERE id = %s FOR UPDATE", [dataset])
        yield
    other.close()


@pytest.mark.settings(database={"pool_size": 4, "pool_timeout": 1})
def test_uploads_that_wait_leave_connections_to_others(app, alice, dataset, url):
    statuses = []

    def upload(number):
        statuses.append(send(alice, dataset, ("a.txt", b"%d" % number)).status_code)

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(20)]
    with held(url, dataset):
        for thread in threads:
            thread.start()
        threading.Event().wait(1.5)
        assert alice.ok("GET", "/datasets")[0]["id"] == dataset
    for thread in threads:
        thread.join()
    assert statuses == [200] * 20
    assert names(alice, dataset) == ["a.txt"]
