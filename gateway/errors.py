"""Errors that stop a start."""


class StartError(Exception):
    """The gateway cannot start. Its text is one line that says what is wrong and what to do."""
