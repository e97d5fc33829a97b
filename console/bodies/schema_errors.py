"""The error of a body that its schema does not describe."""


class BodyNotReadableError(Exception):
    """The body is not of the type; the text gives the reason."""
