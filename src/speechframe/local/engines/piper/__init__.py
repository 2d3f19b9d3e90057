"""The neural speech engine Piper."""
