"""Datasets for other tools: rows of runs as clips with manifests, splits and measures of quality."""
