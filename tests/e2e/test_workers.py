"""A server of several worker processes on one address."""

import os
import re
import signal

import psutil
import requests

from tests.processes import wait_until


def test_a_server_of_several_workers_tells_all_of_them_also_after_one_was_killed(server):
    server.environment |= {"CHATKEEP_SERVER_WORKERS": "2", "TMPDIR": str(server.folder)}
    server.start()

    def workers():
        told = requests.get(f"{server.base}/metrics", timeout=10).text
        assert told.count("# TYPE chatkeep_build_info gauge") == 1
        return re.findall(r'chatkeep_runs_active\{worker="(\d)"\} 0', told)

    wait_until(lambda: workers() == ["0", "1"])
    [killed, *_] = psutil.Process(server.process.pid).children()
    os.kill(killed.pid, signal.SIGKILL)
    wait_until(lambda: not killed.is_running() and workers() == ["0", "1"])
    server.stop()
    assert not list(server.folder.glob("chatkeep-*"))
