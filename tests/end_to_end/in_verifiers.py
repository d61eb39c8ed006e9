"""Run by verifiers' Python: its own scoring of made rows, with examples/verifiers_rubric.py.

    python in_verifiers.py verifiers_rubric.py < ROWS > SCORES

ROWS: JSON, [[completion, solution, {"task": ...}], ...]; SCORES: a reward's name -> its score, of
each. Rubrics until 0.3, tasks' rewards from 0.4 on.
"""

import asyncio
import json
import sys
from pathlib import Path

import verifiers

NAMES = json.loads(sys.argv[2])


async def by_rubric(vf, rows):
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    from verifiers_rubric import rubric

    scorer, states = rubric(*NAMES), []
    for n, (text, gold, info) in enumerate(rows):
        # A chat model's answer is messages, that of a completion a text.
        messages = [vf.AssistantMessage(content=text)] if text else []
        prompt, completion = [vf.UserMessage(content="?")], text if n % 2 else messages
        columns = {"answer": gold, "info": info, "trajectory": []}
        states.append(vf.State(prompt=prompt, completion=completion, **columns))
    for state in states[1:]:
        await scorer.score_rollout(state)
    await scorer.score_group(states[:1])
    assert all(state["reward"] == sum(state["metrics"].values()) for state in states)
    return [state["metrics"] for state in states]


async def by_tasks(vf, rows):
    class Data(vf.TaskData):
        answer: str
        info: dict = {}

    plugged = {name: {"fn": f"{sys.argv[1]}:{name}"} for name in NAMES}
    config = vf.TaskConfig.model_validate({"rewards": plugged})
    agent, scores = vf.AgentInfo(config=vf.AgentConfig()), []
    for text, gold, info in rows:
        task = vf.Task(Data(prompt="?", answer=gold, info=info), config)
        answer = vf.MessageNode(message=vf.AssistantMessage(content=text), sampled=True)
        about = vf.TraceTask(type="Task", data=task.data)
        trace = vf.Trace(task=about, agent=agent, nodes=[answer] * bool(text))
        await task.score(trace)
        scores.append({name: reward.score for name, reward in trace.rewards.items()})
    return scores


if hasattr(verifiers, "Rubric"):
    scoring = by_rubric(verifiers, json.load(sys.stdin))
else:
    import verifiers.v1

    scoring = by_tasks(verifiers.v1, json.load(sys.stdin))
print(json.dumps(asyncio.run(scoring)))
