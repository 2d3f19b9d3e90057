"""Tests for the authors of engines. Each kind of engine, such as a translator, has a class of tests.

In a test module of your package::

    from my_package import MySpeaker
    from speechframe.testing.suites import SpeakerSuite

    class TestMySpeaker(SpeakerSuite):
        engine = MySpeaker

pytest then runs the tests of `SpeakerSuite` on your engine. Speech engines declare their abilities in
``capabilities``. If an engine lacks an ability, the tests of this ability pass without a call of the engine.
"""

import sys

if "pytest" in sys.modules:
    import pytest

    # pytest shows the values of a failed assert only in modules that are registered before their import.
    pytest.register_assert_rewrite(
        *(
            f"{__name__}.{module}"
            for module in ("changers", "common", "recognisers", "speakers", "translators")
        )
    )

from speechframe.testing.suites.changers import ChangerSuite
from speechframe.testing.suites.recognisers import RecogniserSuite
from speechframe.testing.suites.speakers import SpeakerSuite
from speechframe.testing.suites.translators import TranslatorSuite

__all__ = ["ChangerSuite", "RecogniserSuite", "SpeakerSuite", "TranslatorSuite"]
