"""Documents under a real server: killed in the middle of parsing, ten thousand files at once, a model that is far."""

import io
from concurrent.futures import ThreadPoolExecutor, wait

import psutil
import requests

from tests.processes import wait_until


def of_a_dataset(server):
    """A token's headers, and where a new dataset's documents are, at the server that is started."""
    headers = {"Authorization": f"Bearer {server.token()}"}
    base = f"{server.start().base}/api/v1/datasets"
    dataset = requests.post(base, json={"name": "docs"}, headers=headers).json()["data"]["id"]
    return headers, f"{base}/{dataset}/documents"


def test_a_killed_servers_documents_are_parsed_by_the_next_one(server):
    token = server.token()
    server.environment |= {"CHATKEEP_INGEST_LEASE": "1", "CHATKEEP_INGEST_POLL": "0.1"}
    server.start()
    api = requests.Session()
    api.headers["Authorization"] = f"Bearer {token}"
    base = f"{server.base}/api/v1/datasets"
    dataset = api.post(base, json={"name": "docs"}).json()["data"]["id"]
    files = [("file", (f"{n}.md", b"# Pumps\n\n" + b"A pump moves water. " * 2_000)) for n in range(60)]
    kept = api.post(f"{base}/{dataset}/documents", files=files).json()["data"]

    def runs():
        docs = api.get(f"{base}/{dataset}/documents?page_size=100").json()["data"]["docs"]
        return [doc["run"] for doc in docs]

    api.post(f"{base}/{dataset}/chunks", json={"document_ids": [doc["id"] for doc in kept]})
    wait_until(lambda: 0 < runs().count("DONE") < 60)
    server.kill()
    server.start()
    wait_until(lambda: runs() == ["DONE"] * 60, 60)
    counted = api.get(f"{base}/{dataset}").json()["data"]["chunk_count"]
    chunks = [api.get(f"{base}/{dataset}/documents/{doc['id']}/chunks").json()["data"]["total"] for doc in kept]
    assert counted == sum(chunks) > 0


def test_ten_thousand_files_at_once_are_refused_and_the_next_upload_goes_on(server):
    headers, documents = of_a_dataset(server)
    many = [("file", (f"{n}.txt", io.BytesIO(b"x"))) for n in range(10_000)]
    answer = requests.post(documents, files=many, headers=headers)
    assert (answer.status_code, "send it in parts" in answer.json()["message"]) == (413, True)
    few = [("file", ("a.txt", b"A pump moves water."))]
    assert requests.post(documents, files=few, headers=headers).json()["code"] == 0


def test_many_large_uploads_at_once_are_kept_in_little_memory(server):
    headers, documents = of_a_dataset(server)
    worker = psutil.Process(server.process.pid).children()[0]
    before, most = worker.memory_info().rss, 0

    def upload(number):
        files = [("file", ("same.txt", b"%d " % number * 15_000_000))]
        return requests.post(documents, files=files, headers=headers).status_code

    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(upload, number % 10) for number in range(12)]
        while not all(answer.done() for answer in answers):
            most = max(most, worker.memory_info().rss - before)
            wait(answers, 0.05)
    assert [answer.result() for answer in answers] == [200] * 12
    assert most < 30_000_000 * 22, f"{most:,} bytes"
    assert worker.memory_info().rss - before < 30_000_000 * 12


def test_the_command_adds_files_of_every_kind_and_names_those_that_it_cannot_read(server, tmp_path):
    folder = tmp_path / "files"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("# Pumps\n\nA pump moves water.")
    (folder / "deep" / "a.md").write_text("# Valves\n\nA valve stops oil.")
    (folder / "b.html").write_text("<h1>Seals</h1><p>A gasket seals.</p><script>evil()</script>")
    (folder / "c.pdf").write_bytes(b"%PDF-1.7 broken")
    told = server.run("dataset", "add", "docs", str(folder), "--json", check=False)
    assert ('"files": 4, "added": 3, "changed": 0' in told, '"c.pdf": ' in told) == (True, True), told
    assert '"documents": 4, "chunks": 3' in server.run("dataset", "list", "--json")
    again = server.run("dataset", "add", "docs", str(folder / "a.md"), str(folder / "b.html"), "--json")
    assert '"files": 2, "added": 0, "changed": 0, "failed": {}' in again
    (folder / "a.md").write_text("# Pumps\n\nA pump moves oil.")
    (folder / "d.md").write_text("# Pipes\n\nA pipe carries oil.")
    told = server.run("dataset", "add", "docs", str(folder / "a.md"), str(folder / "b.html"), str(folder / "d.md"))
    assert told.strip().endswith(": 3 files, 1 added, 1 changed")
