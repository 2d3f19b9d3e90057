"""Functions and classes that the neural speech engines, Piper and Kokoro, share."""
