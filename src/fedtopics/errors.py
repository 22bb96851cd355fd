"""Every error that fedtopics raises on purpose.

::

    FedTopicsError                 exit code of the command line
    ├── InputError (ValueError)    2   something given cannot be used; nothing was lost
    │   ├── DataError                  documents: a file, a column, a collection of texts
    │   ├── StudyError                 a parameter or a study file
    │   ├── ModelError                 a saved model
    │   ├── RunError                   a run folder or one of its checkpoints
    │   └── IdentityError              a certificate, a key or their folder
    ├── PolicyError                3   a client's own policy keeps a reply from leaving
    └── FederationError            4   server and clients cannot work together: connection,
                                       versions, quorum

A message says what happened with the value, where, and what to do. It never quotes a document.
All of them are permanent: trying again without a change cannot help.
"""

from __future__ import annotations


class FedTopicsError(Exception):
    """Base of all errors of fedtopics."""

    exit_code = 1


class InputError(FedTopicsError, ValueError):
    """Something that was given cannot be used."""

    exit_code = 2


class DataError(InputError):
    """Documents cannot be used: a file, a column, a collection of texts."""


class StudyError(InputError):
    """A parameter or a study file cannot be used."""


class ModelError(InputError):
    """A saved model cannot be used."""


class RunError(InputError):
    """A run folder or a checkpoint cannot be used."""


class IdentityError(InputError):
    """A certificate, a key or their folder cannot be used."""


class PolicyError(FedTopicsError):
    """A client's own policy keeps a reply from leaving."""

    exit_code = 3


class FederationError(FedTopicsError):
    """Server and clients cannot work together: connection, versions, quorum."""

    exit_code = 4
