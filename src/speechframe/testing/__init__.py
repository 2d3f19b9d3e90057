"""What tests of your own need: a service that fails as it is told, and audio that tells whose it is.

From the child process outwards: `knobs` is what can be set, `plan` decides what
happens to which request, `wanted` reads what one asks, `accounts` and `journal`
bill, `audio` and `answers` make bytes, `spoken` makes the answer of a call for
speech, `shelf` has the audio behind URLs, `books` counts, `desk` brings these
together, `protocol` speaks HTTP, `faulty` is the process; `service` starts it
and is what you use.
"""

from speechframe.testing.audio import tag_in, tag_of
from speechframe.testing.books import Billed, Books
from speechframe.testing.plan import Fixed, Lognormal
from speechframe.testing.service import FaultyService

__all__ = ["Billed", "Books", "FaultyService", "Fixed", "Lognormal", "tag_in", "tag_of"]
