"""Widgets for notebooks: hear, compare, judge and watch. Needs ``pip install 'speechframe[notebook]'``.

Each widget is a Python class of a few typed traits and one script written by hand (`page/static`); the
functions people type (`play`, ...) stand beside their class. A widget shows plain HTML where there is no
front end. Nothing is fetched from anywhere, and audio goes to the page when somebody wants to hear it.
"""

try:
    import anywidget as _anywidget
except ImportError as error:
    raise ImportError("widgets need anywidget: pip install 'speechframe[notebook]'") from error

from speechframe.widgets.browser import DatasetBrowser, browse
from speechframe.widgets.comparison import VoiceComparison, compare_voices
from speechframe.widgets.dashboard import RunDashboard, watch
from speechframe.widgets.dub_player import DubPlayer, review
from speechframe.widgets.listening import ListeningTest, listening_test
from speechframe.widgets.player import ClipPlayer, play
from speechframe.widgets.stream_player import StreamPlayer
from speechframe.widgets.voice_gallery import VoiceGallery, gallery

__all__ = [
    "ClipPlayer",
    "DatasetBrowser",
    "DubPlayer",
    "ListeningTest",
    "RunDashboard",
    "StreamPlayer",
    "VoiceComparison",
    "VoiceGallery",
    "browse",
    "compare_voices",
    "gallery",
    "listening_test",
    "play",
    "review",
    "watch",
]

del _anywidget
