"""The speech recogniser Whisper."""
