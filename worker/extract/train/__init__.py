"""Training of the model that finds main text: ``python -m greencrawl.worker.extract.train``.

It needs LightGBM (``requirements-train.txt``), and pages with marked main text; ``samples``
describes their folder. ``labels`` says how much of each block is main text, ``fit`` trains,
``packed`` writes the model as tables, and ``scores`` measures what is found.
"""
