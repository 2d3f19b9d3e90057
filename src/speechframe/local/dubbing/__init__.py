"""Dub media files: replace their speech by speech in another language.

Each dubbing job has a folder, which `folder` describes. Each step of the job
writes a file there, so a worker that was killed can continue. The service
starts `job` as one process per job. No module here handles HTTP, keys or
credits.
"""
