"""Records what `make run` prints in a fresh clone, without credentials: `make excerpt`.

Writes docs/excerpts/make-run.txt. Only the clone's own path is replaced, and the time it took is added.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
EXCERPT = PROJECT / "docs" / "excerpts" / "make-run.txt"
SHOWN = "~/claudeops"
KEPT = ("HOME", "LANG", "PATH", "PIP_INDEX_URL", "PIP_CACHE_DIR", "SSL_CERT_FILE")


def main() -> int:
    """Clone, run, write; return the exit status of `make run`."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="claudeops-excerpt-") as directory:
        clone = Path(directory) / "claudeops"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(PROJECT), str(clone)], check=True)
        began = time.monotonic()
        done = subprocess.run(
            ["make", "--no-print-directory", "run"],
            cwd=clone,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        text = done.stdout.replace(str(clone), SHOWN)
    lines = [
        "$ git clone … claudeops && cd claudeops",
        "$ make run",
        text.rstrip(),
        "",
        f"({seconds:.0f} s in all)",
        "",
    ]
    EXCERPT.write_text("\n".join(lines), encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
