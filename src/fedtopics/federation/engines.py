"""Engines that train a study elsewhere than in this process; packages add them by entry points."""

from typing import Any

from fedtopics.extras import Registry

ENGINES: Registry[Any] = Registry("engine", "fedtopics.engines")
"""Where a study is trained: the workers of Dask, or FLARE's simulator or a system of it.

An engine is made with the options of the command line for it. Its function `train(study, folder,
resume, on_event, **start)` returns the folder with the model, or None if only the members have it;
`start` are the arguments `start` and `vocabulary` of `fedtopics.train`, if given. Dask's also has
`prepared`, which `fedtopics.train` calls with a cluster.
"""
