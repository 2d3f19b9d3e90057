"""Runs over the workers of an executor: a process pool, Dask, Ray, or any other executor."""
