"""The states of translations in PO and XLIFF files."""

NOT_TRANSLATABLE = "no"
"""State of a text that stays in its source language (``translate="no"`` in XLIFF)."""

_UNUSABLE_STATES = frozenset({"untranslated", "fuzzy", "new", "obsolete"})


def is_usable_state(state: str | None) -> bool:
    """Return whether a translation in this state may be spoken or delivered.

    Examples
    --------
    >>> [is_usable_state(state) for state in ("translated", "final", "fuzzy", "needs-translation")]
    [True, True, False, False]
    """
    return not (isinstance(state, str) and (state in _UNUSABLE_STATES or state.startswith("needs-")))
