"""ms-swift's trainers connect to a rollout server before they import plugins: this is earlier."""

import os

if os.environ.get("VLRFT_TEST_SERVER") == "1" and "RANK" in os.environ:
    from support import store_communicator

    store_communicator.install()
