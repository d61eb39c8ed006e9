"""What a test needs at the very start of Python, in the processes that its command starts."""

import os
import sys


def before_swift() -> None:
    """ms-swift's trainers connect to a rollout server before they import plugins."""
    if os.environ.get("VLRFT_TEST_SERVER") == "1" and "RANK" in os.environ:
        from support import store_communicator

        store_communicator.install()


if "VLRFT_TEST_FORKS" in os.environ:
    from pathlib import Path

    import fork_client

    arguments = fork_client.to_hand_over(sys.orig_argv)
    if arguments is not None:
        fork_client.hand_over(arguments, Path(os.environ["VLRFT_TEST_FORKS"]))

before_swift()
