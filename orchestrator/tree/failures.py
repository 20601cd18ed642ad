"""What failed first, of all that a nursery has gathered."""


def first_failure(error: BaseException) -> BaseException:
    """*error*, or the first in it that is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
