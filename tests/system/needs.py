"""Which programs of the operating system `make test-system` lacks; exit code 2 where it lacks one.

`python -m tests.system.needs --packages` prints their packages alone, for scripts.
"""

import os
import shutil
import sys

PACKAGES = {"chromium": "chromium", "nginx": "nginx-light", "caddy": "caddy", "pgbouncer": "pgbouncer",
            "openssl": "openssl"}


def missing(path: str) -> list[str]:
    """The programs that aren't on this search path, nor where Debian keeps servers."""
    return [program for program in PACKAGES if not shutil.which(program, path=f"{path}:/usr/sbin")]


if __name__ == "__main__":
    lacking = missing(os.environ["PATH"])
    packages = " ".join(PACKAGES[program] for program in lacking)
    if "--packages" in sys.argv:
        print(packages)
    elif lacking:
        sys.stderr.write(f"make test-system needs {', '.join(lacking)}:\n"
                         f"  apt-get install -y --no-install-recommends {packages}\n")
        sys.exit(2)
