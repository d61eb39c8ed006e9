"""Whether the rollout server (--vllm_mode server) and its engine are alive.

ms-swift's requests have no timeout. Where the engine of a server has ended (out of memory, say) and
its HTTP server has not, that takes the order to receive weights, and the trainer sends them to
nobody. So the engine is asked before (faults.py).
"""

from __future__ import annotations

from typing import Any

import requests


def what_is_wrong(client: Any, seconds: float) -> str:
    """Say which servers of ms-swift's client do not answer within ``seconds``; "" for none.

    Of several engines of one server (--vllm_data_parallel_size) the first is asked.
    """
    problems = []
    for url in client.base_urls:
        server = f"the rollout server at {url}"
        try:
            # Not through the client's session: after an error the server closes its connection.
            answer = requests.get(f"{url}/get_model_state_keys/", timeout=seconds)
            # An engine that has ended names no weights.
            if answer.status_code == 500 or (answer.ok and not answer.json()["keys"]):
                problems.append(f"{server} answers, but its engine has ended: its log says why")
        except requests.Timeout:
            problems.append(f"{server} has not answered for {seconds:g} seconds")
        except requests.RequestException:
            problems.append(f"{server} does not answer any more")
    return "; ".join(problems)
