"""Other Python processes of this program that begin their work at the same moment."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
PRELUDE = "import sys\ndef go():\n    print('ready', flush=True)\n    sys.stdin.readline()\n"


def run_together(script: str, *arguments: str, count: int = 8) -> list[str]:
    """What `count` processes print; a script calls `go()` where all shall begin, its last argument is its number.

    Raises AssertionError with the error output of one that fails.
    """
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, *arguments, str(number)], cwd=HERE, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in range(count)
    ]
    try:
        for process in started:
            if process.stdout.readline() != "ready\n":
                raise AssertionError(process.communicate()[1])
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        told = [process.communicate(timeout=60) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    failed = [errors for process, (_, errors) in zip(started, told, strict=True) if process.returncode]
    assert not failed, f"{len(failed)} of {count} failed, the first so: {failed[0][-2000:]}"
    return [output.strip() for output, _ in told]
