"""``vlrft plugin`` prints what to give to --external_plugins."""

import typer

from swift_vlrft.files.shipped import shipped_file


def plugin() -> None:
    """Print the path of the plugin file, for --external_plugins.

    Example: swift rlhf --rlhf_type grpo --external_plugins "$(vlrft plugin)" ...
    """
    typer.echo(shipped_file("plugins", "vlrft.py"))
