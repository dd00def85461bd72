"""Why a probe cannot be made."""


class NotApplicableError(ValueError):
    """A probe means nothing for this model or tunnel; the others still do."""


def require_samples(what: str, count: int, least: int) -> None:
    """Refuse a sample that is too small to tell anything from chance."""
    if count < least:
        raise ValueError(f"{what}: {count} is too few to tell from chance, take {least} or more")
