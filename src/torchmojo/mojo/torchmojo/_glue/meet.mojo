"""Facts that several arguments share."""


@always_inline
def meet(mut known: Int, value: Int) -> Bool:
    """Compares a dtype, rank or size with what earlier arguments said.

    Args:
        known: What they said; set to `value` where it is -1, nothing yet.
        value: What this argument says.

    Returns:
        Whether they agree.
    """
    if known < 0:
        known = value
    return known == value
