"""Reports for people: one HTML file that loads nothing from other hosts, and Markdown."""

from fedtopics.report.render import write_report
from fedtopics.report.run import find_model_and_run as find_run
from fedtopics.report.run import over_time
from fedtopics.report.summary import summarise

__all__ = ["find_run", "over_time", "summarise", "write_report"]
