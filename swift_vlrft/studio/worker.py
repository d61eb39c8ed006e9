"""A process that answers one question and ends: ``python -m swift_vlrft.studio.worker``.

It writes a dot when all is imported, reads {"ask", "values", "seconds", "gib"} from its standard
input, and writes {"html"} or {"error"}. Pasted text can make a reader slow or hungry (a line of
YAML that refers to the one above doubles it), so time and memory are limited by the system;
connections, and programs other than the parser of bash, are refused.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from swift_vlrft.report.html import cut
from swift_vlrft.studio.answers import ANSWERS

PROGRAMS = ("shfmt",)
REFUSED = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto")
REFUSED_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn")


def answer(ask: str, values: dict[str, Any]) -> dict[str, str]:
    """The HTML, or the error in one line."""
    try:
        return {"html": ANSWERS[ask](**values)}
    except (ValueError, OSError) as error:
        return {"error": cut(str(error) or type(error).__name__, 1500)}
    except MemoryError:
        return {"error": "this takes more memory than the page gives to one question"}
    except RecursionError:
        return {"error": "this is nested too deeply to be read"}
    except Exception as error:  # a mistake of ours: the page says so, the log says where
        place = error.__traceback__
        while place and place.tb_next:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        print(f"vlrft studio: {type(error).__name__} at {where}", file=sys.stderr)
        return {"error": f"the page failed on this ({type(error).__name__}): a mistake of ours"}


def _confine(seconds: int, gib: float) -> None:
    """Limits of time and memory for all that follows, and no connections or other programs."""

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        program = os.path.basename(str(given[0])) if event == "subprocess.Popen" else ""
        if event in REFUSED or event in REFUSED_PROGRAMS or (program and program not in PROGRAMS):
            raise PermissionError(f"{event} {program}: refused")

    sys.addaudithook(refuse)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    most = now + int(gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    result = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no part of the answer
    result.write(b".")
    result.flush()
    asked = json.loads(sys.stdin.buffer.read() or b"null")
    if asked is not None:  # else the page has ended
        _confine(asked["seconds"], asked["gib"])
        result.write(json.dumps(answer(asked["ask"], asked["values"])).encode())
    result.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
