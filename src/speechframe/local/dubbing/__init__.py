"""A medium becomes another one in which people speak another language.

It happens in a folder, step by step; each step leaves a file, so that a worker
that is killed goes on where it was. `folder` says what lies there. The service
starts `job` as a process for each; nothing here knows of HTTP, keys or
credits.
"""
