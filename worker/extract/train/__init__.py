"""Training of the model by which main text is told: ``python -m greencrawl.worker.extract.train``.

It needs LightGBM (``requirements-train.txt``), and pages with marked main text; ``samples`` says
how these lie in a folder. ``labels`` says of each block how much of it is main text, ``fit``
learns, ``packed`` writes what was learnt as tables, and ``scores`` counts what is found.
"""
