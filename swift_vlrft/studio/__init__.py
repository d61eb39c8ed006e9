"""A page for a ModelScope Studio or a Hugging Face Space: plan, check, and why an answer scored.

    vlrft studio --port 7860          or, in an app.py:   serve("0.0.0.0", 7860)

``answers.py`` has what the page says, as functions that need no Gradio; ``page.py`` shows it. Each
question is answered by a process of its own (``worker.py``), with a limit of time and memory, which
sees no file, variable or GPU of this machine (files/machine.py) and cannot open a connection.
"""
