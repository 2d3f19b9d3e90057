"""The neural speech engine Kokoro."""
