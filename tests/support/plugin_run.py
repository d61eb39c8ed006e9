"""The plugin in a process of its own, as ms-swift imports it."""

import subprocess

from support.swift_run import REPOSITORY, run_python

PLUGIN = REPOSITORY / "plugins" / "vlrft.py"


def import_plugin(*flags: str, then: str = "") -> subprocess.CompletedProcess:
    """Import the plugin as `swift rlhf FLAGS` does, twice, then run ``then``."""
    code = (
        "from swift.utils import import_external_file\n"
        f"import_external_file({str(PLUGIN)!r})\n"
        "from swift_vlrft.swift_plugin import register\n"
        f"register()\n{then}"
    )
    return run_python(code, *flags)
