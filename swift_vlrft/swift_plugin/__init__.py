"""The only folder that imports swift: puts rewards and data sets into ms-swift's registries."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_vlrft.swift_plugin.registration import register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    """On first access: other modules here do without ms-swift's ten seconds of imports."""
    if name != "register":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from swift_vlrft.swift_plugin.registration import register

    return register
