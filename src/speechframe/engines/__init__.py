"""The protocols of engines (`base`), the search for engines (`registry`), and code that engines share.

An engine speaks, changes voices, translates or recognises speech. An entry point names each engine. The
engines of the local service are in `local/engines` and are found in the same way. Engines have global state
and may crash, so the service runs them in worker processes.
"""
