"""The auth token (section 2.7 of the document)."""

from typing import ClassVar

from pydantic import Field

from speechframe.spec.fields._model import CamelModel, Int64


class AuthToken(CamelModel):
    """A short-lived token and the end of its validity (section 2.7). The repr omits the token."""

    section: ClassVar[str] = "2.7"

    token: str | None = Field(None, repr=False, description="The token.")
    expiry_in_epoch_millis: Int64 | None = Field(
        None, description="End of validity, in milliseconds of Unix time."
    )
