"""Messages about deprecated fields and calls. Client and service use the same messages.

Section numbers are those of the service document.
"""

import warnings
from collections.abc import Iterable

from speechframe.spec.facts import read_field_facts
from speechframe.spec.fields._model import DocumentModel

GEN2_STREAMING_NOTICE = "streaming with gen2 is deprecated; use falcon-2, or generate for gen2 voices"
"""Message about a stream with the model gen2 (section 9)."""


def make_deprecation_notice(model: type[DocumentModel], field: str) -> str:
    """Return the message about a deprecated field.

    Parameters
    ----------
    model : type
        Model with the field.
    field : str
        Wire name of the field.

    Examples
    --------
    >>> from speechframe.spec.speech import GenerateRequest
    >>> make_deprecation_notice(GenerateRequest, "multiNativeLocale")
    'multiNativeLocale is deprecated; use locale'
    """
    instead = read_field_facts(model)[field].superseded_by
    return f"{field} is deprecated" + (f"; use {instead}" if instead else "")


def warn_deprecated(model: type[DocumentModel], fields: Iterable[str], *, stacklevel: int = 2) -> None:
    """Issue a DeprecationWarning for each of the given fields.

    Parameters
    ----------
    model : type
        Model with the fields.
    fields : iterable of str
        Wire names, as `check` reports them in `deprecated`.
    stacklevel : int
        As in `warnings.warn`. 1 is the function that calls this one, 2 (the default) is its caller.
    """
    for field in fields:
        warnings.warn(make_deprecation_notice(model, field), DeprecationWarning, stacklevel=stacklevel + 1)
