"""The calls for voices, speech, streams, translation and voice change."""
