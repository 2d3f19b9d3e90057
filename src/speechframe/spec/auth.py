"""The auth token (section 2.7 of the document)."""

from typing import ClassVar

from pydantic import Field

from speechframe.spec.fields._model import CamelModel, Int64

__all__ = ["AuthToken"]


class AuthToken(CamelModel):
    """A short-lived token and when it ends (section 2.7). Its repr hides the token."""

    section: ClassVar[str] = "2.7"

    token: str | None = Field(None, repr=False, description="The token.")
    expiry_in_epoch_millis: Int64 | None = Field(
        None, description="End of life, in milliseconds of Unix time."
    )
