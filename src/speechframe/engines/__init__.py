"""What an engine must do (`base`), how engines are found (`registry`), and what all of them share.

An entry point names each engine. The engines of the local service are in `local/engines` and are found in the
same way. Engines keep global state and may crash, so the service runs them in worker processes.
"""
