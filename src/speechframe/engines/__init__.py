"""Engines of the local service: what each kind must do (`base`) and how they are found (`registry`).

An engine is whatever an entry point names; the shipped ones come in by the same
door. Engines keep global state and may crash, so the service runs them in
worker processes; nothing here starts one.
"""
