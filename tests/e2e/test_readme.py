"""Every command of the README runs as printed, in order, in one shell; so does its SDK script."""

import re
from pathlib import Path

from tests.guides import blocks, check_out, run_in_one_shell
from tests.processes import free_port


def test_every_command_runs_as_printed_in_one_shell(tmp_path: Path) -> None:
    check_out(tmp_path)
    port = free_port()
    script = ["trap 'cat run.log; kill $SERVER' EXIT"]
    for block in blocks("README.md", "sh"):
        if block == "make run\n":  # it serves until it is stopped, so it goes to the background
            script += [
                "make run >run.log 2>&1 & SERVER=$!",
                "for i in $(seq 100); do curl -sf http://127.0.0.1:$PORT/readyz >ready.json && break; sleep 0.3; done",
            ]
        elif block == "make test\n":  # this very test runs inside it
            script.append("make -n test")
        else:
            script.append(block)
    (tmp_path / "sdk.py").write_text("\n".join(blocks("README.md", "python")).replace("9380", str(port)))
    script += [
        "sed -i \"s/<token>/$(cat var/demo-token)/\" sdk.py", ".venv/bin/python sdk.py",
        ".venv/bin/python sdk.py >again.txt",  # a reader goes on in the script, so it runs more than once
        "kill $(pgrep -P $SERVER) 2>/dev/null || true",
    ]
    printed = run_in_one_shell(tmp_path, script, PORT=str(port))
    assert '"final":true' in printed and "[ID:" in printed
    for stream in (printed, *blocks("README.md", "")):  # both of a stream's last events are of its end
        if "id: " in stream:
            *_, before_last, last = re.findall(r"^id: (\S+:\d+)$", stream, re.MULTILINE)
            assert before_last == last
    assert "3 messages are stored" in printed
    assert "A slot is `{message_id, chunks, doc_aggs, citations?}`." in printed
