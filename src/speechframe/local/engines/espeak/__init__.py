"""The speech engine espeak-ng: formant voices in 76 locales."""
