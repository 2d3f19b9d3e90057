"""What every engine of a kind must do, as tests for the author of one: a class for each kind.

In a test module of your package::

    from my_package import MySpeaker
    from speechframe.testing.suites import SpeakerSuite

    class TestMySpeaker(SpeakerSuite):
        engine = MySpeaker

pytest runs its tests as it runs yours. What an engine says it cannot do is not asked of it.
"""

from speechframe.testing.suites.changers import ChangerSuite
from speechframe.testing.suites.recognisers import RecogniserSuite
from speechframe.testing.suites.speakers import SpeakerSuite
from speechframe.testing.suites.translators import TranslatorSuite

__all__ = ["ChangerSuite", "RecogniserSuite", "SpeakerSuite", "TranslatorSuite"]
