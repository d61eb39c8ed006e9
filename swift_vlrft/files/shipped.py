"""Find shipped files that a command line names, in the repository or the installed wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def shipped_file(kind: str, name: str) -> Path:
    """Return the path of ``plugins/NAME``, ``recipes/NAME`` or ``requirements/NAME``."""
    for root in (PACKAGE / "shipped_files", PACKAGE.parent):
        path = root / kind / name
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{kind}/{name} is not part of this installation; reinstall swift-vlrft"
    )
