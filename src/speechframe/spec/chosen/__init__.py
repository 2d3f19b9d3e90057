"""Open points of the service document, with our choices and their reasons.

Nothing in this package comes from the document. The local service publishes the choices at `GET /v1/limits`,
so that readers can distinguish them from the document's rules. `certainty` is `sure` (seen in public clients
of services with this interface), `likely`, `ours` (no outside fact can settle the choice) or `guess`.

Each module has the constants and open points of one chapter. `calls` covers all calls. The other modules are
`speech`, `changer`, `translate`, `dubbing` and `socket`. This package exports all of their names.
"""

from speechframe.spec.chosen import calls, changer, dubbing, socket, speech, translate
from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import *
from speechframe.spec.chosen.changer import *
from speechframe.spec.chosen.dubbing import *
from speechframe.spec.chosen.socket import *
from speechframe.spec.chosen.speech import *
from speechframe.spec.chosen.translate import *

OPEN_POINTS: tuple[OpenPoint, ...] = (
    *calls.CALL_POINTS,
    *speech.SPEECH_POINTS,
    *changer.CHANGER_POINTS,
    *translate.TRANSLATION_POINTS,
    *dubbing.DUBBING_POINTS,
    *socket.SOCKET_POINTS,
)
"""All open points, in the order of the chapters."""
