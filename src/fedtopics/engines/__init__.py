"""Engines carry a method's calls to its clients and the replies back; they know no topics."""
