"""The version, and the numbers of formats, which rise when a saved or sent field changes.

``tests/formats`` has a small file of each format, which is read in each test run, and the fields
that are saved; it fails if they change and the number does not.
"""

VERSION = "0.2.0"
"""Of the program."""

MODEL = 4
"""Of a model's folder."""

LEDGER = 2
"""Of a ledger's lines."""

RECORD = 2
"""Of a member's record of the current step, in the folder of a run's state."""

WIRE = 4
"""Of the messages between members and server. Members with the same number can work together."""
