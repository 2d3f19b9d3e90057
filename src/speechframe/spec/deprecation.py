"""Words for what the document deprecates, the same for the caller's warning and the service's (section 9)."""

import warnings
from collections.abc import Iterable

from speechframe.spec.facts import field_facts
from speechframe.spec.fields._model import DocumentModel

GEN2_STREAMING = "streaming with gen2 is deprecated; use falcon-2, or generate for gen2 voices"
"""Section 9: gen2 streaming."""


def deprecation_notice(model: type[DocumentModel], field: str) -> str:
    """Return words about one deprecated field.

    Parameters
    ----------
    model : type
        The table the field stands in.
    field : str
        Its wire name.

    Examples
    --------
    >>> from speechframe.spec.speech import GenerateRequest
    >>> deprecation_notice(GenerateRequest, "multiNativeLocale")
    'multiNativeLocale is deprecated; use locale'
    """
    instead = field_facts(model)[field].superseded_by
    return f"{field} is deprecated" + (f"; use {instead}" if instead else "")


def warn_deprecated(model: type[DocumentModel], fields: Iterable[str], *, stacklevel: int = 2) -> None:
    """Warn the caller, as a DeprecationWarning, about every deprecated field that was set.

    Parameters
    ----------
    model : type
        The table the fields stand in.
    fields : iterable of str
        Wire names, as `check` reports them in `deprecated`.
    stacklevel : int
        As in `warnings.warn`, counted from the function that calls this one.
    """
    for field in fields:
        warnings.warn(deprecation_notice(model, field), DeprecationWarning, stacklevel=stacklevel + 1)
