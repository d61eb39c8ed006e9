"""Run by verifiers' Python: its own scoring of made rows, with examples/verifiers_rubric.py.

    python in_verifiers.py verifiers_rubric.py < ROWS > SCORES

ROWS: JSON, [[completion, solution, {"task": ...}], ...]; SCORES: a reward's name -> its score, of
each. Rubrics until 0.3, tasks' rewards from 0.4 on.
"""

import asyncio
import json
import sys
from pathlib import Path

NAMES = json.loads(sys.argv[2])


async def by_rubric(vf, rows):
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    from verifiers_rubric import rubric

    made = rubric(*NAMES)

    def completion(n, text):
        """A chat model's answer is messages, that of a completion a text."""
        if n % 2:
            return text
        return [vf.AssistantMessage(content=text)] if text else []

    states = [
        vf.State(
            prompt=[vf.UserMessage(content="?")],
            completion=completion(n, text),
            answer=gold,
            info=info,
            trajectory=[],
        )
        for n, (text, gold, info) in enumerate(rows)
    ]
    for state in states[1:]:
        await made.score_rollout(state)
    await made.score_group(states[:1])
    for state in states:
        assert state["reward"] == sum(state["metrics"].values())
    return [state["metrics"] for state in states]


async def by_tasks(vf, rows):
    class Data(vf.TaskData):
        answer: str
        info: dict = {}

    plugged = {name: {"fn": f"{sys.argv[1]}:{name}"} for name in NAMES}
    config = vf.TaskConfig.model_validate({"rewards": plugged})
    found = []
    for text, gold, info in rows:
        task = vf.Task(Data(prompt="?", answer=gold, info=info), config)
        trace = vf.Trace(
            task=vf.TraceTask(type="Task", data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            nodes=[vf.MessageNode(message=vf.AssistantMessage(content=text), sampled=True)]
            * bool(text),
        )
        await task.score(trace)
        found.append({name: reward.score for name, reward in trace.rewards.items()})
    return found


def main():
    rows = json.load(sys.stdin)
    import verifiers

    if hasattr(verifiers, "Rubric"):
        return asyncio.run(by_rubric(verifiers, rows))
    import verifiers.v1

    return asyncio.run(by_tasks(verifiers.v1, rows))


print(json.dumps(main()))
