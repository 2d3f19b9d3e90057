"""The speech engine espeak-ng: formant voices (computed from rules) in 76 locales."""
