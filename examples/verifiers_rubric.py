"""Our rewards as a rubric of verifiers (0.1 to 0.3), and as rewards of its tasks (0.4).

    env = vf.SingleTurnEnv(dataset=rows, rubric=rubric("vlrft_counting", "vlrft_format"))

``answer`` of a row is the gold solution; ``info`` may hold ``task``, ``aliases``, ``tolerance``.
verifiers 0.4 has no rubrics; its configuration names a function for each reward,

    --env.taskset.task.rewards.vlrft_counting.fn examples/verifiers_rubric.py:vlrft_counting

and ``answer`` and ``info`` are fields of the task's data. Serve the model without a reasoning
parser: vlrft_format looks for the reasoning in the text. verifiers wants numbers, so a row of
another task, or with gold that cannot be read, scores 0.
"""

from swift_vlrft.rewards import REWARDS, score


def scored(name, completion, answer, info):
    """Of one completion."""
    info = info or {}
    columns = {key: info[key] for key in ("task", *REWARDS[name].takes) if key in info}
    return score(name, completion, answer, **columns) or 0.0


def rubric(*names, weights=None):
    """A ``verifiers.Rubric``, which calls a function with what its parameters are named after."""
    functions = [of_rollout(name) for name in names]
    import verifiers

    return verifiers.Rubric(funcs=functions, weights=weights)


def of_rollout(name):
    if name not in REWARDS:  # verifiers would log it and count 0
        raise ValueError(f"{name} is no reward; known: {', '.join(REWARDS)}")

    def score(completion, answer, info):
        if not isinstance(completion, str):  # messages; none where the rollout failed
            completion = (completion[-1]["content"] if completion else None) or ""
        return scored(name, completion, answer, info)

    score.__name__ = name  # as which verifiers logs it
    return score


def __getattr__(name):
    """vlrft_counting and so on, as 0.4 calls them: with a task's data and a trace."""
    if name not in REWARDS:
        raise AttributeError(f"{name} is no reward; known: {', '.join(REWARDS)}")

    async def score(task, trace):
        texts = [message.content for message in trace.assistant_messages]
        return scored(name, texts[-1] if texts else "", task.answer, getattr(task, "info", None))

    return score
