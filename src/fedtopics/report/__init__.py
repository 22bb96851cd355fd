"""A report that people read: one HTML file without any request to a host, and Markdown.

A model and what is known of its run become a summary, plain data; templates show it. Document text
is in neither, unless a client asks for examples of its own.
"""

from __future__ import annotations

from fedtopics.report.render import write_report
from fedtopics.report.run import find as find_run
from fedtopics.report.run import over_time
from fedtopics.report.summary import summarise

__all__ = ["find_run", "over_time", "summarise", "write_report"]
