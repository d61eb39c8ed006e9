"""The only folder that imports swift: puts rewards and data sets into ms-swift's registries."""

from swift_vlrft.swift_plugin.registration import register

__all__ = ["register"]
